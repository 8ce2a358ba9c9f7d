package redislist

import (
	_ "embed" // the scripts
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive/internal/redisconn"
)

var (
	//go:embed script/entry.lua
	entryLua string
	//go:embed script/publish.lua
	publishLua string
	//go:embed script/claim.lua
	claimLua string
	//go:embed script/suspect.lua
	suspectLua string
	//go:embed script/settle.lua
	settleLua string
	//go:embed script/extend.lua
	extendLua string
	//go:embed script/look.lua
	lookLua string
	//go:embed script/order.lua
	orderLua string
	//go:embed script/page.lua
	pageLua string
	//go:embed script/raise.lua
	raiseLua string
	//go:embed script/rights.lua
	rightsLua string
)

// What delivers and settles goes on where the server's memory is full, as it is what
// makes room.
var (
	publishScript = redisconn.NewScript("publish", false, entryLua, publishLua)
	claimScript   = redisconn.NewScript("claim", true, entryLua, claimLua)
	suspectScript = redisconn.NewScript("suspect", true, entryLua, suspectLua)
	settleScript  = redisconn.NewScript("settle", true, entryLua, settleLua)
	extendScript  = redisconn.NewScript("extend", true, entryLua, extendLua)
	lookScript    = redisconn.NewScript("look", true, entryLua, lookLua)
	orderScript   = redisconn.NewScript("order", true, entryLua, orderLua)
	pageScript    = redisconn.NewScript("page", true, entryLua, pageLua)
	raiseScript   = redisconn.NewScript("raise", true, entryLua, raiseLua)
	rightsScript  = redisconn.NewScript("rights", true, rightsLua)
)

// batch is how many items one call of a script takes: few enough that the server is
// not held up for a millisecond or two, and far below what Lua can unpack.
const batch = 100

// noNil takes a nil answer for none.
func noNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}
