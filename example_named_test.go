package redrive_test

import (
	"fmt"

	"github.com/redrive/redrive"
)

// outOfStock may be renamed and moved to another package: failures know it by its name.
type outOfStock struct{ article string }

func (e *outOfStock) Error() string   { return "no " + e.article + " left" }
func (*outOfStock) ErrorName() string { return "shop.OutOfStock" }

var _ redrive.NamedError = (*outOfStock)(nil)

func ExampleNamedError() {
	table := redrive.Table{Permanent: []string{"type:shop.OutOfStock"}}
	c, _ := table.Classify(fmt.Errorf("order 17: %w", &outOfStock{"umbrella"}))
	fmt.Println(c.Class)
	// Output: permanent
}
