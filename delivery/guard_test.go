package delivery

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

func TestGuardAddresses(t *testing.T) {
	for _, c := range []struct {
		addr string
		want kind
	}{
		// IPv4
		{"8.8.8.8", kindPublic},
		{"1.1.1.1", kindPublic},
		{"93.184.215.14", kindPublic},
		{"172.15.255.255", kindPublic},
		{"172.32.0.0", kindPublic},
		{"100.63.255.255", kindPublic},
		{"100.128.0.0", kindPublic},
		{"198.17.255.255", kindPublic},
		{"198.20.0.0", kindPublic},
		{"223.255.255.255", kindPublic},
		{"0.0.0.0", kindReserved},
		{"0.1.2.3", kindReserved},
		{"10.0.0.1", kindPrivate},
		{"10.255.255.255", kindPrivate},
		{"100.64.0.1", kindPrivate},
		{"100.127.255.255", kindPrivate},
		{"100.100.100.200", kindMetadata},
		{"127.0.0.1", kindLoopback},
		{"127.255.255.254", kindLoopback},
		{"168.63.129.16", kindMetadata},
		{"169.254.0.1", kindLinkLocal},
		{"169.254.169.254", kindMetadata},
		{"169.254.170.2", kindMetadata},
		{"172.16.0.1", kindPrivate},
		{"172.31.255.255", kindPrivate},
		{"192.0.0.1", kindReserved},
		{"192.0.0.192", kindMetadata},
		{"192.0.2.1", kindReserved},
		{"192.31.196.1", kindReserved},
		{"192.52.193.1", kindReserved},
		{"192.88.99.1", kindReserved},
		{"192.168.1.1", kindPrivate},
		{"192.175.48.1", kindReserved},
		{"198.18.0.1", kindReserved},
		{"198.19.255.255", kindReserved},
		{"198.51.100.7", kindReserved},
		{"203.0.113.7", kindReserved},
		{"224.0.0.1", kindReserved},
		{"239.255.255.250", kindReserved},
		{"240.0.0.1", kindReserved},
		{"255.255.255.255", kindReserved},
		// IPv6
		{"2606:4700:4700::1111", kindPublic},
		{"2a00:1450:4001:80b::200e", kindPublic},
		{"::", kindReserved},
		{"::1", kindLoopback},
		{"::7f00:1", kindReserved},
		{"::8.8.8.8", kindReserved},
		{"::ffff:8.8.8.8", kindPublic},
		{"::ffff:127.0.0.1", kindLoopback},
		{"::ffff:169.254.169.254", kindMetadata},
		{"::ffff:0:127.0.0.1", kindReserved},
		{"64:ff9b::8.8.8.8", kindPublic},
		{"64:ff9b::127.0.0.1", kindLoopback},
		{"64:ff9b::169.254.169.254", kindMetadata},
		{"64:ff9b:1::8.8.8.8", kindPublic},
		{"64:ff9b:1::10.0.0.1", kindPrivate},
		{"64:ff9b:1:a00:0:100:808:808", kindReserved},
		{"100::1", kindReserved},
		{"100:0:0:1::1", kindReserved},
		{"2001::1", kindReserved},
		{"2001:0:4136:e378:8000:63bf:3fff:fdd2", kindReserved},
		{"2001:2::1", kindReserved},
		{"2001:20::1", kindReserved},
		{"2001:db8::1", kindReserved},
		{"2002:808:808::1", kindPublic},
		{"2002:7f00:1::1", kindLoopback},
		{"2002:a9fe:a9fe::", kindMetadata},
		{"2606:4700::5efe:10.0.0.1", kindPrivate},
		{"2606:4700::200:5efe:127.0.0.1", kindLoopback},
		{"2620:4f:8000::1", kindReserved},
		{"3ffe::1", kindReserved},
		{"3fff::1", kindReserved},
		{"4000::1", kindReserved},
		{"5f00::1", kindReserved},
		{"fc00::1", kindPrivate},
		{"fd12:3456::1", kindPrivate},
		{"fd00:ec2::254", kindMetadata},
		{"fe80::1", kindLinkLocal},
		{"fe80::1%lo", kindLinkLocal},
		{"fec0::1", kindReserved},
		{"ff02::1", kindReserved},
		{"ff0e::1", kindReserved},
	} {
		addr := netip.MustParseAddr(c.addr)
		deny, private := &guard{}, &guard{allowPrivate: true}
		if got := blockedKind(deny.check(addr)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.addr, got, c.want)
		}
		want := c.want
		if want == kindPrivate || want == kindLoopback {
			want = kindPublic
		}
		if got := blockedKind(private.check(addr)); got != want {
			t.Errorf("%s with allow_private: got %q, want %q", c.addr, got, want)
		}
		// Whatever it is, its own network can be allowed.
		plain := addr.Unmap().WithZone("")
		allow := &guard{allow: []netip.Prefix{netip.PrefixFrom(plain, plain.BitLen())}}
		if err := allow.check(addr); err != nil {
			t.Errorf("%s with its own allow_cidrs: %v", c.addr, err)
		}
	}
}

func blockedKind(err error) kind {
	var b *blockedError
	if errors.As(err, &b) {
		return b.kind
	}
	return kindPublic
}

func TestGuardAllowsMappedNetworks(t *testing.T) {
	g := &guard{allow: []netip.Prefix{unmapPrefix(netip.MustParsePrefix("::ffff:10.1.0.0/112"))}}
	if err := g.check(netip.MustParseAddr("10.1.2.3")); err != nil {
		t.Errorf("10.1.2.3: %v", err)
	}
	if g.check(netip.MustParseAddr("10.2.0.1")) == nil {
		t.Error("10.2.0.1 is not in the network that is allowed")
	}
}

func TestGuardRefusesWhatIsNoAddress(t *testing.T) {
	g := &guard{allowPrivate: true}
	for _, address := range []string{"", "localhost:80", "1.2.3.4", "[::1:80"} {
		if g.control(t.Context(), "tcp4", address, nil) == nil {
			t.Errorf("%q was let through", address)
		}
	}
	if g.control(t.Context(), "udp4", "8.8.8.8:53", nil) == nil {
		t.Error("udp was let through")
	}
	if err := g.control(t.Context(), "tcp6", "[fe80::1%eth0]:80", nil); blockedKind(err) != kindLinkLocal {
		t.Errorf("an address with a zone: %v", err)
	}
}

// listen counts the connections that reach a loopback address.
func listen(t *testing.T) (port string, reached *atomic.Int32) {
	t.Helper()
	reached = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return port, reached
}

func TestGuardLiteralForms(t *testing.T) {
	port, reached := listen(t)
	for _, host := range []string{"2130706433", "0x7f.0.0.1", "0177.0.0.1", "127.1", "0", "0x7f000001", "017700000001", "127.0.0.1.", "1.2.3.0x4"} {
		u := "http://" + host + ":" + port + "/"
		if _, err := New(Target{URL: u}, Options{}); !errors.Is(err, redrive.ErrInvalid) {
			t.Errorf("%s: %v, want it refused at construction", host, err)
		}
		// Below New: neither resolver nor dialler may take it for loopback.
		dial := newTransport(&Target{}, &Options{}, DefaultTimeout).DialContext
		if c, err := dial(t.Context(), "tcp", net.JoinHostPort(host, port)); err == nil {
			_ = c.Close()
			t.Errorf("%s was dialled", host)
		}
	}
	for _, host := range []string{"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "①②⑦.⓪.⓪.①", "0.0.0.0", "[::]", "localhost"} {
		h := mustNew(t, Target{URL: "http://" + host + ":" + port + "/"}, Options{})
		var refused *RefusedError
		err := h.ServeDelivery(t.Context(), message("x"))
		if host == "localhost" && !errors.As(err, &refused) {
			t.Logf("localhost: %v", err) // there may be no hosts file
		} else if !errors.As(err, &refused) {
			t.Errorf("%s: %v, want it refused", host, err)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests reached the loopback address", n)
	}
}

func TestRefusalPausesAndReleases(t *testing.T) {
	port, _ := listen(t)
	h := mustNew(t, Target{URL: "http://127.0.0.1:" + port + "/?token=canary1234"}, Options{})
	err := h.ServeDelivery(t.Context(), message("x"))
	v := driver.Classify(nil, err)
	if v.Outcome != redrive.OutcomeRelease || v.After != refusalPause {
		t.Errorf("classified as %v after %s", v.Outcome, v.After)
	}
	if !strings.Contains(err.Error(), "set allow_private: true") {
		t.Errorf("%q does not say how to allow it", err)
	}
	if strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "canary") {
		t.Errorf("%q tells too much", err)
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if strings.Contains(e.Error(), port) {
			t.Errorf("%T tells the address: %v", e, e)
		}
	}
}

func TestAllowPrivateAndCIDR(t *testing.T) {
	port, reached := listen(t)
	for _, target := range []Target{
		{AllowPrivate: true},
		{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}},
	} {
		target.URL = "http://127.0.0.1:" + port + "/"
		if err := mustNew(t, target, Options{}).ServeDelivery(t.Context(), message("x")); err != nil {
			t.Error(err)
		}
	}
	if n := reached.Load(); n != 2 {
		t.Errorf("%d of 2 deliveries arrived", n)
	}
}

// A name that is public when somebody checks it and loopback when it is dialled.
func TestRebinding(t *testing.T) {
	port, reached := listen(t)
	public, loopback := netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr("127.0.0.1")
	resolver := serveDNS(t, public, loopback)
	first, err := resolver.LookupNetIP(t.Context(), "ip4", "rebind.example")
	if err != nil || first[0].Unmap() != public {
		t.Fatalf("the first lookup returned %v, %v", first, err)
	}
	h := mustNew(t, Target{URL: "http://rebind.example:" + port + "/"}, Options{Resolver: resolver})
	var refused *RefusedError
	if err := h.ServeDelivery(t.Context(), message("x")); !errors.As(err, &refused) {
		t.Errorf("the second lookup's address: %v, want it refused", err)
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests reached the loopback address", n)
	}
}

// serveDNS returns a resolver whose server answers A queries with one address after
// the other, the last one for ever, and has no other records.
func serveDNS(t *testing.T, answers ...netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var records []netip.Addr
			if queryType(buf[:n]) == 1 {
				records = answers[:1]
				if len(answers) > 1 {
					answers = answers[1:]
				}
			}
			_, _ = conn.WriteTo(dnsAnswer(buf[:n], records), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

const dnsHeader = 12

// questionEnd returns where the question's name ends.
func questionEnd(query []byte) int {
	at := dnsHeader
	for query[at] != 0 {
		at += int(query[at]) + 1
	}
	return at + 1
}

func queryType(query []byte) uint16 { return binary.BigEndian.Uint16(query[questionEnd(query):]) }

func dnsAnswer(query []byte, records []netip.Addr) []byte {
	end := questionEnd(query) + 4
	b := append([]byte(nil), query[:end]...)
	b[2], b[3] = 0x81, 0x80 // an answer, recursion available
	binary.BigEndian.PutUint16(b[6:], uint16(len(records)))
	binary.BigEndian.PutUint16(b[8:], 0)
	binary.BigEndian.PutUint16(b[10:], 0)
	for _, a := range records {
		b = append(b, 0xc0, dnsHeader, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4) // the question's name, A, IN, TTL 0, 4 bytes
		b = append(b, a.AsSlice()...)
	}
	return b
}
