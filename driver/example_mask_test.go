package driver_test

import (
	"fmt"

	"github.com/redrive/redrive/driver"
)

// MaskMessage shows why two failures are of one group.
func ExampleMaskMessage() {
	fmt.Println(driver.MaskMessage("user 17: dial tcp 10.0.0.7:5432: i/o timeout after 1.5s"))
	// Output: user <n>: dial tcp <n>: i/o timeout after <n>
}
