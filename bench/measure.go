package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// probeTime is how long the disk is probed before each run.
const probeTime = 200 * time.Millisecond

// Probe is what the disk did just before a run: 4 KiB append + fdatasync, one writer.
type Probe struct {
	Rate     float64       // syncs a second
	P50, P99 time.Duration // of one
}

func probeDisk(dir string) (p Probe, err error) {
	f, err := os.Create(filepath.Join(dir, "probe"))
	if err != nil {
		return p, err
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	block := make([]byte, 4096)
	var took []time.Duration
	start := time.Now()
	for time.Since(start) < probeTime {
		before := time.Now()
		if _, err = f.Write(block); err != nil {
			return p, err
		}
		if err = unix.Fdatasync(int(f.Fd())); err != nil {
			return p, err
		}
		took = append(took, time.Since(before))
	}
	p.Rate = float64(len(took)) / time.Since(start).Seconds()
	p.P50, p.P99 = quantile(took, 0.5), quantile(took, 0.99)
	return p, nil
}

// quantile sorts d and returns the value below which a share q of it lies.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

// usage is what this process and one other have used so far.
type usage struct {
	cpu   time.Duration
	bytes int64 // handed to the storage layer
}

func (u usage) add(more usage) usage {
	return usage{cpu: u.cpu + more.cpu, bytes: u.bytes + more.bytes}
}

func (u usage) since(before usage) usage {
	return usage{cpu: u.cpu - before.cpu, bytes: u.bytes - before.bytes}
}

// used adds up this process and, if other is not 0, the process of that number with its
// children. getrusage counts children only after they ended, so living ones are read in
// /proc.
func used(other int) (u usage, err error) {
	var r unix.Rusage
	if err = unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return u, err
	}
	u.cpu = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	if u.bytes, err = writtenBytes("self"); err != nil || other == 0 {
		return u, err
	}
	more, _, err := usedBy(strconv.Itoa(other))
	if err != nil {
		return u, err
	}
	u = u.add(more)
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return u, err
	}
	for _, path := range paths {
		child, parent, err := usedBy(filepath.Base(filepath.Dir(path)))
		if err == nil && parent == other { // else it has ended meanwhile, or is none of ours
			u = u.add(child)
		}
	}
	return u, nil
}

// usedBy reads what a process has used, and its parent. The fields after the command's
// name, which may hold spaces: its parent is the 2nd; utime and stime are the 12th and
// 13th, those of children that ended the 14th and 15th, in ticks of 10 ms.
func usedBy(pid string) (u usage, parent int, err error) {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return u, 0, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if parent, err = strconv.Atoi(fields[1]); err != nil {
		return u, 0, err
	}
	for _, i := range []int{11, 12, 13, 14} {
		ticks, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return u, 0, err
		}
		u.cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	u.bytes, err = writtenBytes(pid)
	return u, parent, err
}

func writtenBytes(pid string) (int64, error) {
	f, err := os.Open(filepath.Join("/proc", pid, "io"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		if text, ok := strings.CutPrefix(s.Text(), "write_bytes: "); ok {
			return strconv.ParseInt(text, 10, 64)
		}
	}
	return 0, fmt.Errorf("no write_bytes in %s", f.Name())
}
