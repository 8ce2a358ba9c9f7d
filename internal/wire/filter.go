package wire

import (
	"cmp"
	"encoding"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Filter selects messages. Its fields are the one table of what messages are filtered by,
// and [Fields] reads it: json names a field in JSON, as a parameter of the lists and as a
// flag; help and doc describe it on the command line and in the API, doc where more is to
// be said there; short, placeholder and type are for the command line. A field fills the
// one of the same name in [redrive.Query]. All stores and the archive know all of them.
type Filter struct {
	Queue     string `json:"queue,omitempty" short:"q" placeholder:"QUEUE" help:"Of this queue."`
	State     string `json:"state,omitempty" placeholder:"STATE" help:"In this state: ${states}."`
	Reason    string `json:"reason,omitempty" placeholder:"REASON" help:"Dead for this reason: ${reasons}."`
	Signature string `json:"signature,omitempty" placeholder:"S" help:"Of the cause with this signature."`
	Kind      string `json:"kind,omitempty" placeholder:"KIND" help:"Of this kind."`
	Key       string `json:"key,omitempty" placeholder:"KEY" help:"Of this key."`
	Since     string `json:"since,omitempty" type:"when" placeholder:"TIME" help:"Not older than this: 1h, 7d, or 2026-01-02T15:04:05Z." doc:"Died (dead letters) or was published at or after: a time of RFC 3339, or a duration before now such as 1h."`
	Until     string `json:"until,omitempty" type:"when" placeholder:"TIME" help:"Not newer than this." doc:"Died (dead letters) or was published before or at: a time of RFC 3339, or a duration before now such as 1h."`
	Text      string `json:"text,omitempty" placeholder:"TEXT" help:"With this text in the last error or the target's answer." doc:"Text in the last error or in the target's answer to the last attempt, as it shows; upper and lower case differ. In errors only without the scope read-payload; what is masked is found by the scope admin only."`
	Body      string `json:"body,omitempty" placeholder:"TEXT" help:"With this text in the body (looks at each one)." doc:"Text in the body, as it shows; upper and lower case differ. Needs the scope read-payload; what is masked is found by the scope admin only. No index serves it."`
	Header    string `json:"header,omitempty" placeholder:"NAME[=VALUE]" help:"With this header." doc:"NAME or NAME=VALUE. Needs the scope read-payload; a value that is masked is found by the scope admin only."`
	Plan      string `json:"plan,omitempty" placeholder:"PLAN" help:"Redriven or repaired last by this plan."`
	Edited    string `json:"edited,omitempty" type:"yes" help:"Edited in place."`
}

// Field is a field of a Filter.
type Field struct {
	Name string   // in JSON, as a parameter, as a flag
	Doc  string   // what the API says of it
	Enum []string // its values, where there are only some

	index int // in Filter
	query int // in redrive.Query
}

// Fields are the fields of a Filter.
var Fields = fields()

// HelpVars are the words that stand as ${name} in the help of fields.
var HelpVars = map[string]string{"states": strings.Join(states(), ", "), "reasons": strings.Join(reasons(), ", ")}

func fields() []Field {
	filter, query := reflect.TypeFor[Filter](), reflect.TypeFor[redrive.Query]()
	list := make([]Field, filter.NumField())
	for i := range list {
		f := filter.Field(i)
		of, ok := query.FieldByName(f.Name)
		if !ok {
			panic("redrive.Query has no field " + f.Name)
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		list[i] = Field{Name: name, Doc: cmp.Or(f.Tag.Get("doc"), f.Tag.Get("help")), index: i, query: of.Index[0]}
		switch of.Type {
		case reflect.TypeFor[redrive.State]():
			list[i].Doc, list[i].Enum = "In this state.", states()
		case reflect.TypeFor[redrive.Reason]():
			list[i].Doc, list[i].Enum = "Dead for this reason.", reasons()
		case reflect.TypeFor[bool]():
			list[i].Enum = []string{yes}
		}
	}
	return list
}

// yes is the value of a filter that has no other.
const yes = "true"

func states() (names []string) {
	for s := redrive.StateWaiting; s <= redrive.StateDead; s++ {
		names = append(names, s.String())
	}
	return names
}

func reasons() (names []string) {
	for _, r := range redrive.Reasons() {
		names = append(names, r.String())
	}
	return names
}

// FieldNames returns the names of all fields but some.
func FieldNames(without ...string) (names []string) {
	skip := strings.Join(without, " ")
	for i := range Fields {
		if name := Fields[i].Name; !strings.Contains(" "+skip+" ", " "+name+" ") {
			names = append(names, name)
		}
	}
	return names
}

// each calls see with each field that is set.
func (f *Filter) each(see func(field *Field, value string)) {
	v := reflect.ValueOf(f).Elem()
	for i := range Fields {
		if s := v.Field(Fields[i].index).String(); s != "" {
			see(&Fields[i], s)
		}
	}
}

// FilterFrom reads a filter from parameters.
func FilterFrom(parameters url.Values) (f Filter) {
	v := reflect.ValueOf(&f).Elem()
	for i := range Fields {
		v.Field(Fields[i].index).SetString(parameters.Get(Fields[i].Name))
	}
	return f
}

// Parameters returns the filter as the parameters of a list.
func (f *Filter) Parameters() url.Values {
	out := url.Values{}
	f.each(func(field *Field, value string) { out.Set(field.Name, value) })
	return out
}

// String describes the filter for people: "queue hooks, reason exhausted", or "".
func (f *Filter) String() string {
	var parts []string
	f.each(func(field *Field, value string) { parts = append(parts, field.Name+" "+value) })
	return strings.Join(parts, ", ")
}

// Query returns the filter as a store takes it. now is what durations count back from.
func (f *Filter) Query(now time.Time) (q redrive.Query, err error) {
	v := reflect.ValueOf(&q).Elem()
	f.each(func(field *Field, value string) {
		if err == nil {
			err = CheckText(field.Name, value)
		}
		if err != nil {
			return
		}
		switch to := v.Field(field.query).Addr().Interface().(type) {
		case *string:
			*to = value
		case *time.Time:
			*to, err = ParseMoment(field.Name, value, now)
		case *bool: // without it all are meant, so there is no other value
			if *to = true; value != yes {
				err = &redrive.Error{Op: "filter", Err: fmt.Errorf("%w %s %q", redrive.ErrInvalid, field.Name, value), Hint: "use true, or leave it out"}
			}
		case encoding.TextUnmarshaler:
			err = to.UnmarshalText([]byte(value))
		default:
			panic(fmt.Sprintf("a filter by %T", to))
		}
	})
	if err == nil && q.Queue != "" {
		err = driver.CheckQueue(q.Queue)
	}
	return q, err
}

// CheckText refuses what some stores cannot compare: text that is not UTF-8, or has a NUL.
func CheckText(name, value string) error {
	if utf8.ValidString(value) && !strings.Contains(value, "\x00") {
		return nil
	}
	return &redrive.Error{Op: "filter", Err: fmt.Errorf("%w %s %.100q", redrive.ErrInvalid, name, value), Hint: "use text in UTF-8 without a NUL"}
}

// FilterOf returns a query's filter.
func FilterOf(q *redrive.Query) (f Filter) {
	from, to := reflect.ValueOf(q).Elem(), reflect.ValueOf(&f).Elem()
	for i := range Fields {
		value := from.Field(Fields[i].query)
		if value.IsZero() {
			continue
		}
		var text string
		switch v := value.Interface().(type) {
		case time.Time:
			text = v.UTC().Format(time.RFC3339Nano)
		default:
			text = fmt.Sprint(v)
		}
		to.Field(Fields[i].index).SetString(text)
	}
	return f
}

// ParseMoment reads a time, or a duration before now; "" is the zero time.
func ParseMoment(name, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, &redrive.Error{Op: "filter", Err: fmt.Errorf("%w %s %q", redrive.ErrInvalid, name, s),
		Hint: "use a time such as 2026-01-31T08:00:00Z, or a duration before now such as 1h"}
}
