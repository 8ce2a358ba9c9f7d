package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/servertest"
)

// sqlPublishers are programs of another language that publish by SQL: 4 threads of 20
// transactions, of which every other one is rolled back. They get host, port and database.
var sqlPublishers = map[string]struct{ module, hint, program string }{
	"postgres": {"psycopg", "apt-get install python3-psycopg", `
import json, psycopg
def connect(): return psycopg.connect(host=host, port=port, dbname=database, user="postgres")
def publish(cursor, body, headers):
    cursor.execute("SELECT redrive.publish('orders', 'paid', %s, headers => %s)", (body, json.dumps(headers)))
`},
	"mysql": {"pymysql", "apt-get install python3-pymysql", `
import json, pymysql
def connect(): return pymysql.connect(host=host, port=int(port), database=database, user="root", charset="utf8mb4")
def publish(cursor, body, headers):
    cursor.execute("CALL redrive_publish('orders', 'paid', %s, %s, @id)", (body, json.dumps({"headers": headers})))
`},
}

const sqlPublisher = `
import sys, threading
host, port, database = sys.argv[1:]
%s
with connect() as conn:
    conn.cursor().execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    conn.commit()
def run(thread):
    conn = connect()
    for i in range(20):
        order = thread * 20 + i
        cursor = conn.cursor()
        cursor.execute("INSERT INTO orders VALUES (%%s)", (order,))
        publish(cursor, "order %%d" %% order, {"x-name": "ü😀"})
        conn.rollback() if i %% 2 else conn.commit()
threads = [threading.Thread(target=run, args=(t,)) for t in range(4)]
for t in threads: t.start()
for t in threads: t.join()
cursor = connect().cursor()
cursor.execute("SELECT id FROM orders")
for (order,) in cursor.fetchall(): print("order", order)
`

// What a program of another language published by SQL is delivered by the daemon, and nothing of
// what it rolled back.
func TestPublishedBySQL(t *testing.T) {
	t.Parallel()
	for name, p := range sqlPublishers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const python = "/usr/bin/python3" // the one that Debian's packages are for
			if err := exec.CommandContext(t.Context(), python, "-c", "import "+p.module).Run(); err != nil {
				servertest.Missing(t, "Python's "+p.module+" is not installed; on Debian: "+p.hint)
			}
			var mu sync.Mutex
			got := make(map[string]int)
			receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				mu.Lock()
				defer mu.Unlock()
				got[string(body)+" "+r.Header.Get("Redrive-Kind")]++
			}))
			defer receiver.Close()
			address := storeServers[name](t).URL()
			d := newDaemonOn(t, address, "queues:\n  orders: {deliver: {url: '"+receiver.URL+"', allow_private: true}}\n")

			u, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), python, "-c", fmt.Sprintf(sqlPublisher, p.program), u.Hostname(), u.Port(), strings.Trim(u.Path, "/")).CombinedOutput()
			orders := strings.Fields(strings.ReplaceAll(string(out), "order ", ""))
			if err != nil || len(orders) != 40 {
				t.Fatalf("%v: %s", err, out)
			}
			until(t, "what was committed is delivered", time.Minute, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(got) >= len(orders)
			})
			mu.Lock()
			defer mu.Unlock()
			for _, order := range orders {
				if got["order "+order+" paid"] == 0 {
					t.Errorf("order %s was not delivered", order)
				}
			}
			if len(got) != len(orders) {
				t.Errorf("delivered %v", got)
			}
			d.redrive("verify").ok(t)
		})
	}
}
