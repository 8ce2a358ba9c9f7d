package text

import "fmt"

// Bounds of names, in bytes.
const (
	MaxQueueName = 64
	MaxIDLength  = 128
)

// CheckQueue reports why a name cannot be a queue's, wrapping invalid, or nil.
func CheckQueue(invalid error, name string) error {
	if name == "" || len(name) > MaxQueueName {
		return fmt.Errorf("%w queue name of %d characters: use 1-64 of a-z 0-9 . _ -", invalid, len(name))
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return fmt.Errorf("%w queue name %q: use 1-64 of a-z 0-9 . _ -", invalid, name)
		}
	}
	if name == "." || name == ".." {
		return fmt.Errorf("%w queue name %q: it has a meaning in paths", invalid, name)
	}
	return nil
}

// CheckID reports why a string cannot be a message's id, wrapping invalid, or nil.
func CheckID(invalid error, id string) error {
	if id == "" || len(id) > MaxIDLength {
		return fmt.Errorf("%w id of %d characters", invalid, len(id))
	}
	for i := range len(id) {
		switch c := id[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == ':', c == '-':
		default:
			return fmt.Errorf("%w id %q", invalid, id)
		}
	}
	return nil
}
