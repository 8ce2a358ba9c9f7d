package driver

import (
	"encoding/json"

	"github.com/redrive/redrive"
)

// EncodeFailure returns the failure as JSON, nil for nil. Backends store this.
func EncodeFailure(f *redrive.Failure) []byte {
	if f == nil {
		return nil
	}
	b, err := json.Marshal(f)
	if err != nil { // no field can fail to encode
		panic(err)
	}
	return b
}

// DecodeFailure is the reverse of EncodeFailure. What cannot be read becomes a
// failure that says so: a damaged failure history does not hide its message.
func DecodeFailure(b []byte) *redrive.Failure {
	if len(b) == 0 {
		return nil
	}
	f := new(redrive.Failure)
	if err := json.Unmarshal(b, f); err != nil {
		f = &redrive.Failure{Types: []string{"redrive.undecodableFailure"}, Message: string(b)}
		f.Clean()
	}
	return f
}
