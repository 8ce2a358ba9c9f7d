package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive/internal/kafkatest"
	"github.com/redrive/redrive/internal/pgtest"
)

func TestRunOnSQLite(t *testing.T) {
	t.Parallel() // each is a script of some seconds
	play(t, "sqlite:"+t.TempDir(), "")
}

func TestRunOnPostgreSQL(t *testing.T) {
	t.Parallel()
	play(t, pgtest.Start(t, nil).URL(), "")
}

// TestRunOnKafka has SQLite beside the topic. It also looks whether the requests that
// were put off went through the topic.
func TestRunOnKafka(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(t.Context(), 4, 1, nil, "sms"); err != nil {
		t.Fatal(err)
	}
	play(t, "kafka://"+broker.Addr()+"/sms?group=sms", "sqlite:"+t.TempDir())
	offsets, err := admin.ListEndOffsets(t.Context(), "sms")
	if err != nil {
		t.Fatal(err)
	}
	var records int64
	offsets.Each(func(o kadm.ListedOffset) { records += o.Offset })
	if records == 0 {
		t.Error("nothing went through the topic")
	}
	t.Logf("%d records in the topic", records)
}

func TestAStoreBesideAStoreIsRefused(t *testing.T) {
	if err := run(t.Context(), io.Discard, 1, time.Second, "sqlite:"+t.TempDir(), "sqlite:"+t.TempDir()); err == nil {
		t.Error("-store was ignored")
	}
}

// play plays a short script over real HTTP. No request may be lost; some must have been
// put off.
func play(t *testing.T, queue, store string) {
	t.Helper()
	var out strings.Builder
	if err := run(t.Context(), &out, 50, 8*time.Second, queue, store); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	text := out.String()
	if !strings.Contains(text, "none lost") || strings.Contains(text, " 0 put off") || !strings.Contains(text, " 0 refused") {
		t.Errorf("got\n%s", text)
	}
	t.Log("\n" + text)
}
