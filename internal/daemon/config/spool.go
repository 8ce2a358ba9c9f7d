package config

// Spool configures what accepts messages while the store cannot be reached. It is of use
// with a store on a server.
type Spool struct {
	// Dir is a folder for it. Without one there is no spool.
	Dir string `yaml:"dir" json:"dir,omitempty"`
	// Messages and Bytes bound what it holds. They default to 100000 and 256MiB.
	Messages int64 `yaml:"messages" json:"messages,omitempty"`
	Bytes    Size  `yaml:"bytes" json:"bytes,omitempty"`
}

func (s *Spool) check(k *checker, store string) {
	if s.Dir == "" {
		if s.Messages != 0 || s.Bytes != 0 {
			k.bad("spool", "it has no folder", "name one with dir:")
		}
		return
	}
	if store != "" {
		k.bad("spool.dir", "the store is in this process: there is nothing to spool for", "leave spool: out, or use a store on a server")
	}
	if s.Messages < 0 || s.Bytes < 0 {
		k.bad("spool", "a limit is negative", "")
	}
}
