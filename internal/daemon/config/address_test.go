package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestAddressShowsNoPassword(t *testing.T) {
	for written, want := range map[Address]string{
		"sqlite:./redrive-data":                             "sqlite:./redrive-data",
		"env:STORE":                                         "env:STORE",
		"postgres://u@host/db?pool_max_conns=4":             "postgres://u@host/db?pool_max_conns=4",
		"postgres://u:hunter2@host/db":                      "postgres://u:***@host/db",
		"redis://:hunter2@host:6379/0":                      "redis://:***@host:6379/0",
		"postgres://host/db?password=hunter2&sslmode=allow": "postgres://host/db?password=***&sslmode=allow",
		"mysql://u:hunter2@[::1":                            "mysql://***",
	} {
		marshalled, err := json.Marshal(written)
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range []string{written.String(), fmt.Sprintf("%v", written), strings.Trim(string(marshalled), `"`), written.LogValue().String()} {
			if got = strings.ReplaceAll(got, `\u0026`, "&"); got != want {
				t.Errorf("%s is shown as %s, want %s", string(written), got, want)
			}
		}
	}
}

func TestAddressIsResolvedAtUse(t *testing.T) {
	t.Setenv("REDRIVE_TEST_STORE", "postgres://u:hunter2@host/db")
	got, err := Address("env:REDRIVE_TEST_STORE").Resolve()
	if err != nil || got != "postgres://u:hunter2@host/db" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := Address("env:REDRIVE_TEST_NOT_SET").Resolve(); err == nil {
		t.Error("a missing variable is not shown")
	}
}
