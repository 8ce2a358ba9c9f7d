//go:build !linux

package sqlite

// room knows nothing here: there is no reserve.
func room(string) (total, free int64, copies string, err error) { return 0, 0, "", errNoReserve }

func allocate(string, int64) error { return errNoReserve }
