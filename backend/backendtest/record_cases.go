package backendtest

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

var recordCases = []testCase{
	{name: "RecordsCompareAndSet", run: recordsCAS},
	{name: "RecordsOneWinner", run: recordsOneWinner},
	{name: "RecordsExpire", run: recordsExpire},
	{name: "RecordsListInOrder", run: recordsList},
	{name: "RecordsSurviveARestart", run: recordsSurvive, needs: []need{reopen}},
}

func (c *C) write(key string, value []byte, version int64, expires time.Duration) error {
	_, err := c.store.Apply(c.ctx, driver.Batch{Records: []driver.RecordWrite{{Space: "s", Key: key, Value: value, Version: version, Expires: expires}}})
	return err
}

func (c *C) read(key string) driver.Record {
	c.Helper()
	r, err := c.store.GetRecord(c.ctx, "s", key)
	c.noError(err, "record %s", key)
	return r
}

func recordsCAS(c *C) {
	_, err := c.store.GetRecord(c.ctx, "s", "k")
	c.is(err, "a record that is not there", redrive.ErrNotFound)
	c.is(c.write("k", []byte("x"), 1, 0), "write with a version that never was", redrive.ErrVersion)
	value := noise(driver.MaxRecordSize)
	c.noError(c.write("k", value, 0, 0), "first write")
	first := c.read("k")
	if !bytes.Equal(first.Value, value) || first.Version <= 0 || first.Space != "s" || first.Key != "k" || !first.ExpiresAt.IsZero() {
		c.Errorf("record of %d bytes, version %d, %s/%s, expires %s", len(first.Value), first.Version, first.Space, first.Key, first.ExpiresAt)
	}
	c.is(c.write("k", []byte("x"), 0, 0), "a second first write", redrive.ErrVersion)
	c.noError(c.write("k", []byte{}, first.Version, 0), "write with the right version")
	second := c.read("k")
	if second.Version <= first.Version || second.Value == nil && len(second.Value) != 0 {
		c.Errorf("version %d after %d", second.Version, first.Version)
	}
	c.is(c.write("k", []byte("x"), first.Version, 0), "write with an old version", redrive.ErrVersion)
	c.noError(c.write("k", []byte("any"), driver.AnyVersion, 0), "write with any version")
	third := c.read("k")
	c.is(c.write("k", nil, second.Version, 0), "deletion with an old version", redrive.ErrVersion)
	c.noError(c.write("k", nil, third.Version, 0), "deletion")
	_, err = c.store.GetRecord(c.ctx, "s", "k")
	c.is(err, "a deleted record", redrive.ErrNotFound)
	c.noError(c.write("k", nil, driver.AnyVersion, 0), "deletion of what is not there")
	c.noError(c.write("k", []byte("again"), 0, 0), "write after the deletion")
	if fourth := c.read("k"); fourth.Version <= third.Version {
		c.Errorf("after a deletion the version is %d, it was %d", fourth.Version, third.Version)
	}
	c.is(c.write("k", noise(driver.MaxRecordSize+1), driver.AnyVersion, 0), "a record that is too large", redrive.ErrInvalid)
}

func recordsOneWinner(c *C) {
	c.noError(c.write("counter", []byte{0}, 0, 0), "write")
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				r, err := c.store.GetRecord(c.ctx, "s", "counter")
				if err != nil {
					c.Errorf("read: %v", err)
					return
				}
				err = c.write("counter", []byte{r.Value[0] + 1}, r.Version, 0)
				c.is(err, "write", nil, redrive.ErrVersion)
				if err == nil {
					won.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if r := c.read("counter"); int32(r.Value[0]) != won.Load() {
		c.Errorf("%d writes were accepted, the value is %d", won.Load(), r.Value[0])
	}
}

func recordsExpire(c *C) {
	c.noError(c.write("lease", []byte("mine"), 0, 2*c.tick), "write")
	r := c.read("lease")
	if left := r.ExpiresAt.Sub(c.now()); left <= 0 || left > 2*c.tick {
		c.Errorf("it expires in %s, want %s", left, 2*c.tick)
	}
	c.is(c.write("lease", []byte("yours"), 0, 2*c.tick), "taking a lease that holds", redrive.ErrVersion)
	c.noError(c.write("lease", []byte("mine"), r.Version, 4*c.tick), "extension")
	c.pass(3 * c.tick)
	extended := c.read("lease")
	c.pass(2 * c.tick)
	_, err := c.store.GetRecord(c.ctx, "s", "lease")
	c.is(err, "an expired record", redrive.ErrNotFound)
	if list, err := c.store.ListRecords(c.ctx, "s", "", 10); err != nil || len(list) != 0 {
		c.Errorf("an expired record is listed: %v, %v", list, err)
	}
	c.is(c.write("lease", []byte("mine"), extended.Version, 0), "extension after it expired", redrive.ErrVersion)
	c.noError(c.write("lease", []byte("yours"), 0, 0), "taking a lease that ended")
	if r := c.read("lease"); r.Version <= extended.Version {
		c.Errorf("after an expiry the version is %d, it was %d", r.Version, extended.Version)
	}
}

func recordsList(c *C) {
	for _, i := range []int{5, 3, 9, 1, 7} {
		c.noError(c.write(fmt.Sprintf("key-%d", i), []byte{byte(i)}, 0, 0), "write")
	}
	_, err := c.store.Apply(c.ctx, driver.Batch{Records: []driver.RecordWrite{{Space: "t", Key: "key-4", Value: []byte("x")}}})
	c.noError(err, "write")
	var keys []string
	after := ""
	for {
		list, err := c.store.ListRecords(c.ctx, "s", after, 2)
		c.noError(err, "list")
		if len(list) > 2 {
			c.Errorf("a list of %d, want at most 2", len(list))
		}
		if len(list) == 0 {
			break
		}
		for _, r := range list {
			keys = append(keys, r.Key)
			after = r.Key
		}
	}
	c.equal("keys", keys, []string{"key-1", "key-3", "key-5", "key-7", "key-9"})
}

func recordsSurvive(c *C) {
	c.noError(c.write("k", []byte("v"), 0, 0), "write")
	before := c.read("k")
	c.configure(driver.QueueSettings{OrderByKey: true})
	c.again()
	if after := c.read("k"); after.Version != before.Version || string(after.Value) != "v" {
		c.Errorf("record %+v, was %+v", after, before)
	}
	c.noError(c.write("k", nil, before.Version, 0), "deletion")
	c.again()
	c.noError(c.write("k", []byte("w"), 0, 0), "write")
	if after := c.read("k"); after.Version <= before.Version {
		c.Errorf("after a deletion and a restart the version is %d, it was %d", after.Version, before.Version)
	}
	c.publish(redrive.Message{ID: "a", Key: "k"}, redrive.Message{ID: "b", Key: "k"})
	c.equal("settings of the queue after a restart", ids(c.claim(c.ask(2))), []string{"a"})
}
