package store

import (
	"context"

	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// apart is the storage of a resource without a cache, whose watches go over a stream of their own to etcd.
//
// A list from a cache asks etcd how far the caches' watches are. etcd answers that for a stream as a whole, and not while one of its watches begins after
// the newest revision: each watch does that begins where a list ended, until something is written. On one stream with the caches' watches, such a watch by
// a client (of events, say) holds up every list for the three seconds after which a cache gives up to ask.
type apart struct{ storage.Interface }

// Watch implements storage.Interface.
func (a apart) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	return a.Interface.Watch(metadata.AppendToOutgoingContext(ctx, "source", "uncached"), key, options)
}
