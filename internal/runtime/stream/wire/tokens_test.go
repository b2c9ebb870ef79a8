package wire

import (
	"errors"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

func TestTokens(t *testing.T) {
	var k tokens
	now := time.Now()
	serve := func(*session) {}
	token, err := k.add("exec", serve, now)
	if err != nil || len(token) < 22 { // of 64 letters each, that would be 128 bits
		t.Fatalf("%q, %v", token, err)
	}
	if _, ok := k.take("attach", token, now); ok {
		t.Error("a token was good for something else")
	}
	if _, ok := k.take("exec", token, now.Add(tokenLife-1)); !ok {
		t.Error("a token was not good")
	}
	if _, ok := k.take("exec", token, now); ok {
		t.Error("a token was good twice")
	}
	old, err := k.add("exec", serve, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := k.take("exec", old, now.Add(tokenLife)); ok {
		t.Error("a token was good for too long")
	}
	var some []string
	for range maxTokens {
		token, err := k.add("exec", serve, now)
		if err != nil {
			t.Fatal(err)
		}
		some = append(some, token)
	}
	if _, err := k.add("exec", serve, now); !errors.Is(err, errdefs.ErrResourceExhausted) {
		t.Errorf("one token too many: %v", err)
	}
	if _, ok := k.take("exec", some[500], now); !ok {
		t.Error("a token in the middle is not good")
	}
	if _, err := k.add("exec", serve, now); err != nil {
		t.Errorf("in the place of a used one: %v", err)
	}
	if _, err := k.add("exec", serve, now.Add(tokenLife)); err != nil || k.order.Len() != 1 || len(k.known) != 1 {
		t.Errorf("%v; %d are left when all have expired, want the new one", err, k.order.Len())
	}
}
