package redisstream

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc64"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redisconn"
	"github.com/redrive/redrive/internal/redistest"
)

// openAt opens a store of a server, which closes with the test.
func openAt(t testing.TB, url, prefix string) *Store {
	t.Helper()
	s, err := Open(context.Background(), url, WithPrefix(prefix))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// open opens a new store on the shared server.
func open(t testing.TB) *Store {
	t.Helper()
	return openAt(t, redistest.Shared(t).URL(), redistest.Prefix())
}

// factory makes stores of a server that is reached by a URL.
func factory(url string) backendtest.Factory {
	again := func(t testing.TB, s driver.Store) driver.Store {
		return openAt(t, url, s.(*Store).conn.Config.Prefix)
	}
	return backendtest.Factory{
		Open:    func(t testing.TB) driver.Store { return openAt(t, url, redistest.Prefix()) },
		Connect: again,
		Reopen: func(t testing.TB, s driver.Store) driver.Store {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			return again(t, s)
		},
		Crash: func(t testing.TB, s driver.Store) driver.Store {
			_ = s.Close() // what it held stays as it is: nothing is given back
			return again(t, s)
		},
		Flip: flip, Shift: shift,
	}
}

// flip is a Factory's Flip: it changes the last byte of a message's body, of its original's if
// that is meant.
func flip(t testing.TB, s driver.Store, ref redrive.Ref, original bool) {
	t.Helper()
	found, _, err := s.(*Store).lookup(t.Context(), []redrive.Ref{ref})
	if err != nil || found[0] == nil || original && found[0].original == nil {
		t.Fatalf("no %s to flip: %+v, %v", ref, found, err)
	}
	it, c := found[0], s.(*Store).conn
	hash := it.q.keys[keyWaiting]
	switch it.place[0] {
	case 's':
		flipEntry(t, c, it.q.keys[keyStream], it.place[1:])
		return
	case 'd':
		hash = it.q.keys[keyDeadBlobs]
	}
	blob, err := c.HGet(t.Context(), hash, ref.ID).Bytes()
	noErr(t, err)
	at := len(blob) - 1
	if original {
		inner, err := seal(it.original, &stored{sum: it.originalSum})
		noErr(t, err)
		at = bytes.Index(blob, inner) + len(inner) - 1
	}
	blob[at] ^= 1
	noErr(t, c.HSet(t.Context(), hash, ref.ID, blob).Err())
}

// flipEntry changes the last byte of an entry of a stream. No command does that, so the whole
// stream is taken out, changed and put back, with groups and leases. What the stream still
// holds of entries that are deleted may look the same: the one that is meant is found by
// trying.
func flipEntry(t testing.TB, c *redisconn.Conn, stream, entry string) {
	t.Helper()
	ctx := t.Context()
	noErr(t, c.ConfigSet(ctx, "rdbcompression", "no").Err()) // bodies stand in the dump as they are
	show := func() string {
		got, err := c.XRange(ctx, stream, entry, entry).Result()
		if err != nil || len(got) != 1 {
			t.Fatalf("%s of %s: %v, %v", entry, stream, got, err)
		}
		return got[0].Values[field].(string)
	}
	whole, dump := show(), []byte(c.Dump(ctx, stream).Val())
	redis64 := crc64.MakeTable(0x95AC9329AC4BC9B5) // Jones, as the server's dumps have it
	for at := 0; ; at++ {
		next := bytes.Index(dump[at:], []byte(whole))
		if next < 0 {
			t.Fatalf("%s is not in the dump of %s", entry, stream)
		}
		at += next
		changed := slices.Clone(dump)
		changed[at+len(whole)-1] ^= 1
		sum := len(changed) - 8
		binary.LittleEndian.PutUint64(changed[sum:], ^crc64.Update(^uint64(0), redis64, changed[:sum]))
		noErr(t, c.RestoreReplace(ctx, stream, 0, string(changed)).Err())
		if show() != whole {
			return
		}
	}
}

// shift is a Factory's Shift, for what is indexed: a plain entry of the stream is due whatever
// its time is.
func shift(t testing.TB, s driver.Store, queue string, d time.Duration) {
	t.Helper()
	ctx, c, by := t.Context(), s.(*Store).conn, d.Microseconds()
	for _, q := range s.(*Store).everywhere(queue) {
		for _, key := range []string{q.keys[keyWaiting], q.keys[keyDeadBlobs]} {
			for id, blob := range c.HGetAll(ctx, key).Val() {
				raw := []byte(blob)
				binary.LittleEndian.PutUint64(raw[24:], math.Float64bits(float64(double(blob[24:])+by)))
				noErr(t, c.HSet(ctx, key, id, raw).Err())
			}
		}
		for name, key := range map[string]int{"0": keyLanes, "1": keyLanes + 1, "2": keyLanes + 2, "x": keyReleased, "d": keyClaimable} {
			for _, z := range c.ZRangeWithScores(ctx, q.keys[key], 0, -1).Val() {
				noErr(t, c.ZIncrBy(ctx, q.keys[key], float64(by), z.Member.(string)).Err())
			}
			noErr(t, c.HIncrBy(ctx, q.keys[keyCounters], "latest"+name, by).Err())
		}
	}
}

func TestConformance(t *testing.T) {
	server := redistest.Shared(t)
	f := factory(server.URL())
	open := f.Open
	f.Open = func(t testing.TB) driver.Store {
		s := open(t)
		redistest.Foreign(t, server.Client(t), s.(*Store).prefix+"foreign")
		return s
	}
	f.Contents = func(t testing.TB, s driver.Store) map[string]string {
		return redistest.Contents(t, server.Client(t), s.(*Store).prefix+"*")
	}
	f.Fill = func(t testing.TB, _ driver.Store) func() {
		c := server.Client(t)
		set := func(n string) {
			if err := c.ConfigSet(context.Background(), "maxmemory", n).Err(); err != nil {
				t.Error(err)
			}
		}
		set("1mb")
		return func() { set("0") }
	}
	backendtest.Run(t, f)
}
