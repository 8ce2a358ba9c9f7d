// Command chat serves a chat-like page whose messages go over WebSocket through Redrive
// to an API, and whose answers come back the same way. The page has a switch that takes
// the API down: what is written meanwhile waits, and is answered when the API is back,
// also if the page was reloaded, or this program was killed and started again.
//
//	go run ./examples/chat        # then open http://127.0.0.1:8080
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/redrive/redrive/backend/sqlite"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address of the page")
	data := flag.String("data", "", "folder of the store; by default one in the user's cache")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *listen, *data); err != nil {
		log.Print(err)
		os.Exit(1) //nolint:gocritic // there is nothing left to stop
	}
}

func run(ctx context.Context, listen, data string) error {
	if data == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		data = filepath.Join(cache, "redrive-chat")
	}
	store, err := sqlite.Open(data)
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // everything that was accepted is synced
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	fmt.Printf("open http://%s; messages are kept in %s\n", listener.Addr(), data)
	return serve(ctx, listener, store)
}

const shutdown = 5 * time.Second

// end tells pages to come back, and waits for what is under way.
func (c *chat) end(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdown)
	defer cancel()
	return errors.Join(c.gateway.Drain(ctx), server.Shutdown(ctx))
}
