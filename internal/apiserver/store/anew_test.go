package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/storage/value"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// prefixes encrypts by putting a word before what it is given; what has neither the new word nor the old one it cannot read.
type prefixes struct{}

func (prefixes) TransformFromStorage(_ context.Context, data []byte, _ value.Context) ([]byte, bool, error) {
	if plain, ok := bytes.CutPrefix(data, []byte("new:")); ok {
		return plain, false, nil
	}
	if plain, ok := bytes.CutPrefix(data, []byte("old:")); ok {
		return plain, true, nil
	}
	return nil, false, errors.New("no key fits")
}

func (prefixes) TransformToStorage(_ context.Context, data []byte, _ value.Context) ([]byte, error) {
	return append([]byte("new:"), data...), nil
}

// Each record that is not as it would be written now is, with the lease by which it ends; those that cannot be read are named, and hold up none.
func TestAnew(t *testing.T) {
	c, ctx := startEtcd(t).Client(), t.Context()
	put := func(key, value string, options ...clientv3.OpOption) {
		t.Helper()
		if _, err := c.Put(ctx, key, value, options...); err != nil {
			t.Fatal(err)
		}
	}
	lease, err := c.Grant(ctx, 3600)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2*page + 20 {
		put(fmt.Sprintf("/registry/things/a/%03d", n), "old:x", clientv3.WithLease(lease.ID))
	}
	put("/registry/things/a/000a", "broken")
	put("/registry/things/a/150a", "broken")
	put("/registry/things/b", "new:y")
	put("/registry/thingsies/a", "old:z") // of another resource
	s := New(Config{Client: c, Codecs: serializer.NewCodecFactory(clientscheme.Scheme), Transformer: func(schema.GroupResource) value.Transformer { return prefixes{} }})
	defer s.Close()
	things := schema.GroupResource{Resource: "things"}
	for range 2 {
		seen, err := s.Anew(ctx, things)
		if seen != 2*page+23 || err == nil || strings.Count(err.Error(), "no key fits") != 2 || !strings.Contains(err.Error(), "/registry/things/a/000a: ") || !strings.Contains(err.Error(), "/registry/things/a/150a: ") {
			t.Errorf("%d records, %v", seen, err)
		}
	}
	for key, want := range map[string]string{"/registry/things/a/000": "new:x", "/registry/things/a/219": "new:x", "/registry/things/b": "new:y", "/registry/thingsies/a": "old:z", "/registry/things/a/150a": "broken"} {
		found, err := c.Get(ctx, key)
		if err != nil || len(found.Kvs) != 1 {
			t.Fatalf("%s: %v, %v", key, found, err)
		}
		kv := found.Kvs[0]
		if string(kv.Value) != want || (kv.Lease == int64(lease.ID)) != (want == "new:x") || want == "new:x" && kv.Version != 2 || want != "new:x" && kv.Version != 1 {
			t.Errorf("%s is %q, its version %d, its lease %d", key, kv.Value, kv.Version, kv.Lease)
		}
	}
}
