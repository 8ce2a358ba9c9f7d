package mysql

import "github.com/redrive/redrive/internal/sqlstore"

// Headers that hold names that are longer than any that Publish accepts.
const (
	headerNativeKey  = "redrive-native-key"
	headerNativeKind = "redrive-native-kind"
)

// fitForeign cuts names that are too long for their columns; headers keep the whole.
func fitForeign(m *sqlstore.Message) {
	for _, part := range []struct {
		text   *string
		header string
	}{{&m.Key, headerNativeKey}, {&m.Kind, headerNativeKind}, {&m.ReplyTo, ""}, {&m.EditedFrom, ""}, {&m.Plan, ""}} {
		if len(*part.text) <= textMax {
			continue
		}
		if part.header != "" {
			m.Headers = m.Headers.Clone()
			m.Headers.Add(part.header, *part.text)
		}
		*part.text = (*part.text)[:textMax]
	}
}
