package main

import "testing"

// The demo keeps to a schema or prefix of its own, whatever the address.
func TestDemoHasASpaceOfItsOwn(t *testing.T) {
	for address, want := range map[string]string{
		"postgres://u:p@a:1,b:2/app":                  "postgres://u:p@a:1,b:2/app?redrive_schema=redrive_demo",
		"postgresql://h/app?sslmode=disable":          "postgresql://h/app?sslmode=disable&redrive_schema=redrive_demo",
		"postgres://h/app?redrive_schema=mine&x=y":    "postgres://h/app?redrive_schema=mine&x=y",
		"mysql://root@h/app":                          "mysql://root@h/app?redrive_prefix=redrive_demo_",
		"redis+cluster://a:1,b:2?durability=aof":      "redis+cluster://a:1,b:2?durability=aof&prefix=redrive_demo",
		"redis://h/0?durability=aof&prefix=somewhere": "redis://h/0?durability=aof&prefix=somewhere",
	} {
		if got, err := demoStore(address); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", address, string(got), err, want)
		}
	}
	for _, address := range []string{"./folder", "sqlite:./folder", "kafka://h/topic"} {
		if got, err := demoStore(address); err == nil {
			t.Errorf("%s: %s", address, string(got))
		}
	}
}
