package memory_test

import (
	"os"
	"testing"

	"github.com/redrive/redrive/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m.Run)) }
