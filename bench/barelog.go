package main

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// bareLog is what the disk and the machine allow: the bytes appended to one file, one
// sync for all who wait.
var bareLog = Driver{
	Name:       "bare log",
	Version:    func() string { return "own code" },
	Settings:   "append with length and checksum, one fdatasync for all who wait; it delivers nothing",
	Durability: "publish synced",
	Synced:     true,
	Open: func(dir string) (Queue, error) {
		f, err := os.Create(filepath.Join(dir, "log"))
		if err != nil {
			return nil, err
		}
		l := &logQueue{file: f, work: make(chan logWrite, 1024), ended: make(chan struct{})}
		go l.write()
		return l, nil
	},
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type logQueue struct {
	file  *os.File
	work  chan logWrite
	ended chan struct{}
}

type logWrite struct {
	bodies [][]byte
	done   chan error
}

func (l *logQueue) Batches() {}

func (l *logQueue) Publish(_ context.Context, bodies [][]byte) error {
	w := logWrite{bodies, make(chan error, 1)}
	l.work <- w
	return <-w.done
}

// write takes whatever came in while the last group was written as the next group.
func (l *logQueue) write() {
	defer close(l.ended)
	var buf []byte
	var group []chan error
	add := func(w logWrite) {
		for _, b := range w.bodies {
			// What it takes to read a log back: a length and a checksum a record.
			buf = binary.LittleEndian.AppendUint32(buf, uint32(len(b)))
			buf = binary.LittleEndian.AppendUint32(buf, crc32.Checksum(b, castagnoli))
			buf = append(buf, b...)
		}
		group = append(group, w.done)
	}
	for w := range l.work {
		buf, group = buf[:0], group[:0]
		add(w)
		for n := len(l.work); n > 0; n-- {
			add(<-l.work)
		}
		_, err := l.file.Write(buf)
		if err == nil {
			err = unix.Fdatasync(int(l.file.Fd()))
		}
		for _, done := range group {
			done <- err
		}
	}
}

func (l *logQueue) Close() error {
	close(l.work)
	<-l.ended
	return l.file.Close()
}
