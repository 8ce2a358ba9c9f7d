package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// publishSchemes are those of brokers that are published to.
var publishSchemes = []string{"kafka", "kafkas", "rabbitmq", "rabbitmqs", "amqp", "amqps", "nats", "natss", "redis", "rediss"}

// toOrigin publishes each message where it came from.
const toOrigin = "origin"

// checkPublish checks a target that is a broker.
func (d *Deliver) checkPublish(k *checker, path string) {
	if d.Publish == "" {
		if d.To != "" || len(d.Allow) > 0 {
			k.bad(path, "to and allow belong to publish", "add publish: kafka://host:9092, or remove them")
		}
		return
	}
	path += ".publish"
	d.checkBroker(k, path)
	web := map[string]bool{
		"url": d.URL != "", "endpoints": len(d.Endpoints) > 0, "secret": !d.Secret.IsZero(), "secrets": len(d.Secrets) > 0, "headers": len(d.Headers) > 0,
		"allow_private": d.AllowPrivate, "allow_cidrs": len(d.AllowCIDRs) > 0, "max_response": d.MaxResponse != 0,
	}
	for _, key := range slices.Sorted(maps.Keys(web)) {
		if web[key] {
			k.bad(path, "the messages go to a broker, and "+key+" is for HTTP", "remove publish, or "+key)
		}
	}
	switch {
	case d.To == "":
		k.bad(path, "nothing says where in the broker", "add to: with a topic, queue, subject or stream, or to: "+toOrigin)
	case d.To == toOrigin && len(d.Allow) == 0:
		k.bad(path, "to: origin publishes to places that headers name, which any sender of a message can write",
			`add allow: [orders, "orders.*"]; redrive attach prints the places that it saw`)
	case d.To != toOrigin && len(d.Allow) > 0:
		k.bad(path, "allow has a meaning only with to: "+toOrigin, "remove it")
	}
	if slices.Contains(d.Allow, "") {
		k.bad(path, "an empty name in allow allows nothing", "remove it")
	}
}

func (d *Deliver) checkBroker(k *checker, path string) {
	text, err := d.Publish.Resolve()
	if err != nil { // it may be set where the daemon runs
		return
	}
	if d.Publish.String() != string(d.Publish) {
		k.secrets = append(k.secrets, string(d.Publish)) // excerpts of the file would show it
	}
	scheme, _, _ := strings.Cut(text, ":")
	if u, err := url.Parse(text); !slices.Contains(publishSchemes, scheme) {
		k.bad(path, fmt.Sprintf("a broker of scheme %q is not known", scheme), "write one of "+strings.Join(publishSchemes, "://, ")+"://")
	} else if err != nil || u.Host == "" {
		k.bad(path, "this is not an address of a "+scheme+" broker", "write "+scheme+"://host")
	}
}
