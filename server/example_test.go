package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/server"
)

// The API can be had over any store, without a daemon.
func ExampleNew() {
	store := memory.New()
	defer store.Close()
	local := server.New(store, server.Options{})
	defer local.Close()

	api := httptest.NewServer(local)
	defer api.Close()
	r, _ := http.NewRequest(http.MethodPost, api.URL+"/v1/queues/sms/messages", strings.NewReader(`{"to":"+49170"}`))
	r.Header.Set("redrive-id", "order-1")
	for range 2 {
		r.Body = io.NopCloser(strings.NewReader(`{"to":"+49170"}`))
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Print(resp.Status, " ", string(body))
	}
	// Output:
	// 202 Accepted {"queue":"sms","id":"order-1"}
	// 202 Accepted {"queue":"sms","id":"order-1","duplicate":true}
}

// The dashboard is below a prefix of a program's own mux, behind that program's login.
func ExampleAPI_Pages() {
	store := memory.New()
	defer store.Close()
	if errs := store.Publish(context.Background(), []redrive.Message{{Queue: "sms", ID: "order-1", Body: []byte(`{"to":"+49170"}`)}}); errs != nil {
		fmt.Println(errs)
		return
	}
	local := server.New(store, server.Options{})
	defer local.Close()

	mux := http.NewServeMux()
	mux.Handle("/ops/", loggedIn(local.Pages("/ops")))
	program := httptest.NewServer(mux)
	defer program.Close()

	resp, err := http.Get(program.URL + "/ops/ui/queues")
	if err != nil {
		fmt.Println(err)
		return
	}
	page, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	fmt.Println(resp.Status)
	for _, part := range []string{`<h1>[^<]+</h1>`, `<a class="row"[^>]+>[^<]+</a>`} {
		fmt.Printf("%s\n", regexp.MustCompile(part).Find(page))
	}
	// Output:
	// 200 OK
	// <h1>1 queue, 1 waiting</h1>
	// <a class="row" href="/ops/ui/queues/sms">sms</a>
}

// loggedIn stands for what a program asks of people before it lets them in.
func loggedIn(next http.Handler) http.Handler { return next }
