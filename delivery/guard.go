package delivery

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"syscall"
)

// guard decides which addresses may be connected to. It is asked with the address
// that is about to be dialled, after every lookup, so that a name that resolves to
// something else the next time gains nothing.
type guard struct {
	allowPrivate bool
	allow        []netip.Prefix
}

func newGuard(t *Target) *guard {
	g := &guard{allowPrivate: t.AllowPrivate}
	for _, p := range t.AllowCIDRs {
		g.allow = append(g.allow, unmapPrefix(p))
	}
	return g
}

// kind says what an address is, for the reason of a refusal. The address itself is
// not reported: that would make deliveries a scanner of our network.
type kind string

const (
	kindPublic    kind = ""
	kindPrivate   kind = "a private address"
	kindLoopback  kind = "a loopback address"
	kindLinkLocal kind = "a link-local address"
	kindMetadata  kind = "an address of a cloud's metadata service"
	kindReserved  kind = "an address that is reserved"
)

// blockedError is what the guard answers.
type blockedError struct{ kind kind }

func (e *blockedError) Error() string {
	hint := "add its network to allow_cidrs"
	if e.kind == kindPrivate || e.kind == kindLoopback {
		hint = "set allow_private: true beside its address, or add its network to allow_cidrs,"
	}
	return "the target is at " + string(e.kind) + ", where nothing is delivered to; " + hint + " to allow it"
}

func (*blockedError) ErrorName() string { return "delivery.BlockedError" }

var errNotTCP = errors.New("deliveries go over TCP")

// control is a net.Dialer's ControlContext.
func (g *guard) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return errNotTCP
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return &blockedError{kindReserved}
	}
	return g.check(to.Addr())
}

// check returns nil for an address that may be connected to.
func (g *guard) check(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("") // no prefix contains an address with a zone
	for _, p := range g.allow {
		if p.Contains(addr) {
			return nil
		}
	}
	switch k := kindOf(addr); {
	case k == kindPublic:
	case g.allowPrivate && (k == kindPrivate || k == kindLoopback):
	default:
		return &blockedError{k}
	}
	if inner, ok := embedded(addr); ok {
		return g.check(inner)
	}
	return nil
}

// kindOf returns what an address is; of one that embeds another, what it is itself.
func kindOf(addr netip.Addr) kind {
	if !addr.IsValid() {
		return kindReserved
	}
	for _, s := range special {
		if s.prefix.Contains(addr) {
			return s.kind
		}
	}
	if addr.Is6() && !globalUnicast.Contains(addr) {
		return kindReserved
	}
	return kindPublic
}

// embedded returns the IPv4 address that a translator or tunnel on the way would
// send to: NAT64, 6to4, and ISATAP interface identifiers.
func embedded(addr netip.Addr) (netip.Addr, bool) {
	if !addr.Is6() {
		return netip.Addr{}, false
	}
	b := addr.As16()
	switch {
	case nat64.Contains(addr), nat64Local.Contains(addr),
		(b[8] == 0 || b[8] == 2) && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe:
		return netip.AddrFrom4([4]byte(b[12:16])), true
	case sixToFour.Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return netip.Addr{}, false
}

var (
	// IANA assigns global unicast addresses from here only; the rest of IPv6 is
	// refused as a whole, also what is assigned in future.
	globalUnicast = netip.MustParsePrefix("2000::/3")
	nat64         = netip.MustParsePrefix("64:ff9b::/96")
	nat64Local    = netip.MustParsePrefix("64:ff9b:1::/96")
	sixToFour     = netip.MustParsePrefix("2002::/16")
)

type specialPrefix struct {
	prefix netip.Prefix
	kind   kind
}

// special lists what is not public: the IANA registries of special-purpose
// addresses, multicast, retired allocations, and addresses of metadata services that
// lie in other ranges. The first that contains an address counts.
var special = func() (list []specialPrefix) {
	for _, of := range []struct {
		kind     kind
		prefixes string
	}{
		{kindMetadata, "169.254.169.254/32 169.254.170.2/32 168.63.129.16/32 100.100.100.200/32 192.0.0.192/32 " +
			"fd00:ec2::254/128 fd20:ce::254/128"},
		{kindLoopback, "127.0.0.0/8 ::1/128"},
		{kindPrivate, "10.0.0.0/8 100.64.0.0/10 172.16.0.0/12 192.168.0.0/16 fc00::/7"},
		{kindLinkLocal, "169.254.0.0/16 fe80::/10"},
		// The two NAT64 prefixes are judged by the address inside.
		{kindPublic, "64:ff9b::/96 64:ff9b:1::/96"},
		{kindReserved, "0.0.0.0/8 192.0.0.0/24 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 " +
			"192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 " +
			"::/96 ::ffff:0:0/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23 2001:db8::/32 2620:4f:8000::/48 " +
			"3ffe::/16 3fff::/20 5f00::/16 fec0::/10 ff00::/8"},
	} {
		for p := range strings.FieldsSeq(of.prefixes) {
			list = append(list, specialPrefix{netip.MustParsePrefix(p), of.kind})
		}
	}
	return list
}()

// unmapPrefix turns ::ffff:10.0.0.0/104 into 10.0.0.0/8, as addresses are compared
// in their short form.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}
