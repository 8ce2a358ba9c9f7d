package backend_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redrive/redrive/backend"
)

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "redrive")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	store, err := backend.Open(context.Background(), "sqlite:"+filepath.Join(dir, "data"))
	if err != nil {
		panic(err)
	}
	defer store.Close()
	fmt.Println(store.Caps().Browsable)
	// Output: true
}

func TestAnUnknownSchemeIsRefusedWithoutItsPassword(t *testing.T) {
	for _, address := range []string{"oracle://u:hunter2@host", "hunter2", ""} {
		_, err := backend.Open(t.Context(), address)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", address, err)
		}
	}
}
