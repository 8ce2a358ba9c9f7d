// Package powerloss is a disk that forgets: a file system in memory, mounted with
// FUSE, that keeps what the page cache holds apart from what was synced. Cutting its
// power throws away what was not synced, all of it or a random half, as a machine
// does that loses its power. kill -9 by itself shows nothing of the kind, because the
// operating system still has every page that was written. The disk can be full and slow, too.
//
// The rule for directories is the strict one of POSIX: a file that was created,
// renamed or removed is so only after its directory was synced.
package powerloss

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// pageSize is the unit in which writes reach a disk.
const pageSize = 4096

// Mode says what is lost with the power.
type Mode uint8

// The modes.
const (
	DropAll  Mode = iota + 1 // everything that was not synced
	DropHalf                 // a random half of the pages and directory changes that were not synced
)

// Disk is the file system. Its methods are for one goroutine; what is mounted may be
// used by any number of processes.
type Disk struct {
	dir    string
	random *rand.Rand
	server *fuse.Server

	mu      sync.Mutex
	root    *file
	off     bool          // the power is cut: every operation fails
	full    bool          // no file can grow
	slow    time.Duration // each sync takes so much longer
	nextIno uint64
	syncs   int64
	journal []change // of directories, in order, not yet synced
}

// file is a file or a directory, as it is seen and as it is on the disk.
type file struct {
	ino  uint64
	mode uint32

	data  []byte         // as it is seen
	disk  []byte         // as it was synced
	dirty map[int64]bool // pages that were written since
	sized bool           // its size was changed since

	names, diskNames map[string]*file // of a directory
}

// change is one change of directories: a name that appears, disappears or moves.
type change struct {
	dirs []*file // a rename changes one or two
	do   func()  // repeats it on the synced names
}

// New makes an empty disk and mounts it at dir. The seed decides what a random half
// is.
func New(dir string, seed uint64) (*Disk, error) {
	d := &Disk{dir: dir, random: rand.New(rand.NewPCG(seed, 0))}
	d.root = d.newFile(syscall.S_IFDIR | 0o700)
	return d, d.mount()
}

func (d *Disk) newFile(mode uint32) *file {
	d.nextIno++
	f := &file{ino: d.nextIno, mode: mode, dirty: make(map[int64]bool)}
	if mode&syscall.S_IFMT == syscall.S_IFDIR {
		f.names, f.diskNames = make(map[string]*file), make(map[string]*file)
	}
	return f
}

func (d *Disk) mount() error {
	forever := time.Hour // nobody else changes this file system
	server, err := fs.Mount(d.dir, &node{disk: d, file: d.root}, &fs.Options{
		EntryTimeout: &forever, AttrTimeout: &forever,
		RootStableAttr: &fs.StableAttr{Mode: syscall.S_IFDIR, Ino: d.root.ino},
		MountOptions:   fuse.MountOptions{FsName: "powerloss", Name: "powerloss", DirectMount: true, DisableXAttrs: true, MaxWrite: 1 << 20},
	})
	if err != nil {
		return fmt.Errorf("mount at %s: %w", d.dir, err)
	}
	d.server = server
	return nil
}

// Off cuts the power at this instant: nothing becomes durable any more, and every
// operation fails with EIO. Then kill whoever uses the disk, and call On.
func (d *Disk) Off() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
}

// Full says whether there is no room: what grows a file fails with ENOSPC then, as does
// a new name.
func (d *Disk) Full(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

// Slow says how much longer each sync takes. Writes go to the cache.
func (d *Disk) Slow(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow = by
}

// drag waits as long as the disk is slow.
func (d *Disk) drag() {
	d.mu.Lock()
	by := d.slow
	d.mu.Unlock()
	if by > 0 {
		wait := time.NewTimer(by)
		<-wait.C
	}
}

// On loses what was not synced and mounts the disk again, with nothing in the
// kernel's cache. Nobody may have files of it open.
func (d *Disk) On(mode Mode) error {
	if err := d.Close(); err != nil {
		return err
	}
	d.mu.Lock()
	d.lose(mode)
	d.off = false
	d.mu.Unlock()
	return d.mount()
}

// Close unmounts the disk.
func (d *Disk) Close() error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := d.server.Unmount()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		// A process that was killed closes its files a moment after it is gone.
		wait := time.NewTimer(20 * time.Millisecond)
		<-wait.C
	}
}

// Syncs returns how often something was synced, to show that it was at all.
func (d *Disk) Syncs() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs
}

// lose makes what is on the disk the only truth.
func (d *Disk) lose(mode Mode) {
	keep := func() bool { return mode == DropHalf && d.random.IntN(2) == 0 }
	for _, c := range d.journal {
		if keep() {
			c.do()
		}
	}
	d.journal = nil
	seen := make(map[*file]bool)
	var walk func(f *file)
	walk = func(f *file) {
		if seen[f] {
			return
		}
		seen[f] = true
		f.lose(keep)
		f.names = nil
		if f.diskNames != nil {
			f.names = make(map[string]*file, len(f.diskNames))
		}
		for name, child := range f.diskNames {
			f.names[name] = child
			walk(child)
		}
	}
	walk(d.root)
}

// lose forgets the pages of one file that were not synced, except those kept.
func (f *file) lose(keep func() bool) {
	if f.sized && len(f.data) < len(f.disk) && keep() { // a cut that was not synced
		f.disk = f.disk[:len(f.data)]
	}
	for p := range int64(len(f.data)+pageSize-1) / pageSize { // in order, so that a seed repeats
		if f.dirty[p] && keep() {
			f.writeBack(p)
		}
	}
	f.data = append([]byte(nil), f.disk...)
	clear(f.dirty)
	f.sized = false
}

// writeBack copies one page to the disk.
func (f *file) writeBack(page int64) {
	start := page * pageSize
	end := min(start+pageSize, int64(len(f.data)))
	if start >= end {
		return
	}
	if grow := end - int64(len(f.disk)); grow > 0 {
		f.disk = append(f.disk, make([]byte, grow)...)
	}
	copy(f.disk[start:end], f.data[start:end])
}

// sync makes a file durable.
func (f *file) sync() {
	if f.sized && len(f.data) < len(f.disk) {
		f.disk = f.disk[:len(f.data)]
	}
	if grow := len(f.data) - len(f.disk); grow > 0 {
		f.disk = append(f.disk, make([]byte, grow)...)
	}
	for p := range f.dirty {
		f.writeBack(p)
	}
	clear(f.dirty)
	f.sized = false
}

// syncDir makes the names of a directory durable.
func (d *Disk) syncDir(dir *file) {
	rest := d.journal[:0]
	for _, c := range d.journal {
		concerns := false
		for _, f := range c.dirs {
			concerns = concerns || f == dir
		}
		if concerns {
			c.do()
		} else {
			rest = append(rest, c)
		}
	}
	d.journal = rest
}

// write puts bytes into a file as it is seen.
func (f *file) write(b []byte, off int64) {
	end := off + int64(len(b))
	if grow := end - int64(len(f.data)); grow > 0 {
		old := int64(len(f.data))
		f.data = append(f.data, make([]byte, grow)...)
		for p := old / pageSize; p*pageSize < off; p++ { // the hole is new too
			f.dirty[p] = true
		}
	}
	copy(f.data[off:], b)
	for p := off / pageSize; p*pageSize < end; p++ {
		f.dirty[p] = true
	}
}

// resize cuts or grows a file as it is seen.
func (f *file) resize(size int64) {
	switch old := int64(len(f.data)); {
	case size < old:
		f.data = f.data[:size]
		f.dirty[size/pageSize] = true // its tail reads as zero if the file grows again
		for p := range f.dirty {
			if p*pageSize >= size && p != size/pageSize {
				delete(f.dirty, p)
			}
		}
	case size > old:
		f.data = append(f.data, make([]byte, size-old)...)
		for p := old / pageSize; p*pageSize < size; p++ {
			f.dirty[p] = true
		}
	}
	f.sized = true
}

// errOff is what every operation gives while the power is off.
const errOff = syscall.EIO

// maxFile bounds a file, so that a mistake does not eat the memory.
const maxFile = 1 << 30
