package config

import (
	"path/filepath"
	"time"
)

// Bounds of backups.
const (
	DefaultBackups = 24 // that are kept
	minBackupEvery = time.Minute
)

// Backup copies an embedded store at fixed intervals. A store on a server has backups of its own.
type Backup struct {
	// Every is the time from one to the next, at least 1m. Without it there are none.
	Every Duration `yaml:"every" json:"every,omitempty"`
	// Keep is how many are kept, the newest. Defaults to 24.
	Keep int `yaml:"keep" json:"keep,omitempty"`
	// Dir is the folder that they are in, best on another disk: each is a folder of its own that opens as a
	// store. Defaults to "backups" in the store's folder.
	Dir string `yaml:"dir" json:"dir,omitempty"`
}

func (b *Backup) check(k *checker, store string) {
	switch {
	case *b == Backup{}:
		return
	case b.Every == 0:
		k.bad("backup.every", "it is missing", "write how long it is from one to the next, such as 1h")
	case b.Every.Std() < minBackupEvery:
		k.bad("backup.every", "it is less than 1m", "write a longer time, such as 1h")
	}
	if b.Keep < 0 {
		k.bad("backup.keep", "it is negative", "write how many are kept, such as 24")
	}
	if store == "" {
		k.bad("backup", "the store is not in this process", "use what its server has for it: pg_dump or WAL archiving, mariadb-dump or mariadb-backup, snapshots or AOF of Redis")
	}
}

// BackupDir returns the folder of the backups.
func (c *Config) BackupDir() string {
	if c.Backup.Dir != "" {
		return c.Backup.Dir
	}
	return filepath.Join(c.StoreDir(), "backups")
}
