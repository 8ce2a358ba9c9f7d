package errname

// StockError stands in another package than its namesake of the tests outside.
type StockError struct{}

func (*StockError) Error() string     { return "not enough stock" }
func (*StockError) ErrorName() string { return "shop.StockError" }

// Unnamed has no name but its type's.
type Unnamed struct{}

func (*Unnamed) Error() string { return "not enough stock" }
