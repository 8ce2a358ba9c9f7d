package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

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
