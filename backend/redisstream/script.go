package redisstream

import (
	_ "embed"
	"encoding/binary"
	"math"
	"strconv"

	"github.com/redrive/redrive/internal/redisconn"
)

// The scripts; each begins with a legend of its keys and arguments.
var (
	//go:embed lua/lib.lua
	luaLib string
	//go:embed lua/introduce.lua
	luaIntroduce string
	//go:embed lua/reserve.lua
	luaReserve string
	//go:embed lua/publish.lua
	luaPublish string
	//go:embed lua/done.lua
	luaDone string
	//go:embed lua/claim.lua
	luaClaim string
	//go:embed lua/step.lua
	luaStep string
	//go:embed lua/extend.lua
	luaExtend string
	//go:embed lua/get.lua
	luaGet string
	//go:embed lua/page.lua
	luaPage string
	//go:embed lua/counts.lua
	luaCounts string
	//go:embed lua/causes.lua
	luaCauses string
	//go:embed lua/trim.lua
	luaTrim string
	//go:embed lua/records.lua
	luaRecords string
	//go:embed lua/verify.lua
	luaVerify string
	//go:embed lua/consumers.lua
	luaConsumers string
	//go:embed lua/acknowledge.lua
	luaAcknowledge string

	// What takes messages in is refused by a full server; what lets them go is not.
	scriptIntroduce   = redisconn.NewScript("introduce", false, luaIntroduce)
	scriptReserve     = redisconn.NewScript("reserve", false, luaLib, luaReserve)
	scriptPublish     = redisconn.NewScript("publish", false, luaPublish)
	scriptAdd         = redisconn.NewScript("add", false, luaLib, luaStep).Using("XACKDEL")
	scriptStep        = redisconn.NewScript("step", true, luaLib, luaStep).Using("XACKDEL")
	scriptDone        = redisconn.NewScript("done", true, luaDone).Using("XACKDEL")
	scriptClaim       = redisconn.NewScript("claim", true, luaLib, luaClaim).Using("XACKDEL")
	scriptExtend      = redisconn.NewScript("extend", true, luaLib, luaExtend)
	scriptTrim        = redisconn.NewScript("trim", true, luaLib, luaTrim)
	scriptConsumers   = redisconn.NewScript("consumers", true, luaConsumers)
	scriptAcknowledge = redisconn.NewScript("acknowledge", true, luaAcknowledge)
	scriptGet         = redisconn.NewReader("get", luaLib, luaGet)
	scriptPage        = redisconn.NewReader("page", luaLib, luaPage)
	scriptCounts      = redisconn.NewReader("counts", luaLib, luaCounts)
	scriptRecords     = redisconn.NewReader("records", luaLib, luaRecords)
	scriptCauses      = redisconn.NewReader("causes", luaLib, luaCauses)
	scriptVerify      = redisconn.NewReader("verify", luaLib, luaVerify)
)

// packed is an argument of a script in MessagePack, which the server's Lua reads.
type packed []byte

func (p *packed) list(n int) {
	*p = append(*p, 0xdd)
	*p = binary.BigEndian.AppendUint32(*p, uint32(n)) //nolint:gosec // few
}

func (p *packed) str(s string) {
	p.strHead(len(s))
	*p = append(*p, s...)
}

func (p *packed) bytes(b []byte) {
	p.strHead(len(b))
	*p = append(*p, b...)
}

func (p *packed) strHead(n int) {
	switch {
	case n < 32:
		*p = append(*p, 0xa0|byte(n)) //nolint:gosec // checked
	case n < 1<<16:
		*p = binary.BigEndian.AppendUint16(append(*p, 0xda), uint16(n))
	default:
		*p = binary.BigEndian.AppendUint32(append(*p, 0xdb), uint32(n)) //nolint:gosec // a message is far smaller
	}
}

func (p *packed) num(n int64) {
	if n >= 0 && n < 128 {
		*p = append(*p, byte(n))
		return
	}
	*p = binary.BigEndian.AppendUint64(append(*p, 0xcb), math.Float64bits(float64(n)))
}

// strs packs a list of texts; none is empty text.
func strs(list []string) string {
	if len(list) == 0 {
		return ""
	}
	var p packed
	p.list(len(list))
	for _, s := range list {
		p.str(s)
	}
	return string(p)
}

// Answers of scripts.

func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}

func number(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return n
		}
		f, _ := strconv.ParseFloat(v, 64)
		return int64(f)
	}
	return 0
}

func items(v any) []any {
	list, _ := v.([]any)
	return list
}

// at returns an element of an answer, nil beyond its end.
func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}
