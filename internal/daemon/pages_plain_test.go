//go:build !noui

package daemon_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/internal/browsertest"
)

// plainLogin logs in by a token and says where that led.
const plainLogin = `
const page = await watch(await browser.newContext(), () => {});
await page.goto(ask.base + '/ui/queues');
await page.fill('input[name=token]', 'secret-root');
await page.click('form[action$="/ui/login"] button');
await page.waitForLoadState();
console.log(JSON.stringify({ url: page.url(), text: await page.innerText('main') }));
await browser.close();
`

// A browser that reaches the daemon by plain http at an address that is not the loopback's logs in, as people do in
// networks of their own. Where public_url is an https address it is sent there: the session's cookie would not
// come back.
func TestALoginOverPlainHTTP(t *testing.T) {
	host := addressOfHere(t)
	for name, public := range map[string]string{"": "", "public_url is https": "https://redrive.example.com"} {
		t.Run(name, func(t *testing.T) {
			cfg := parse(t, strings.TrimSuffix(pagesConfig, "}")+fmt.Sprintf(", tokens: [{name: root, hash: %q}]", hash("secret-root"))+"}")
			cfg.Listen, cfg.PublicURL = "0.0.0.0:0", public
			d := start(t, cfg, memory.New())
			_, port, _ := net.SplitHostPort(strings.TrimPrefix(d.base, "http://"))
			base := "http://" + net.JoinHostPort(host, port)
			var got struct{ URL, Text string }
			browsertest.Script(t, []byte(plainLogin), map[string]string{"base": base}, &got)
			switch {
			case public == "" && got.URL != base+"/ui/queues":
				t.Errorf("%+v", got)
			case public != "" && !strings.Contains(got.Text, "open "+public):
				t.Errorf("%+v", got)
			}
		})
	}
}

// addressOfHere is an address of this machine that is not the loopback's.
func addressOfHere(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but the loopback's")
	return ""
}
