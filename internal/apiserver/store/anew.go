package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
)

// page is how many records are read at once to be written anew.
const page = 100

// namedFailures is how many records are named that could not be written anew.
const namedFailures = 20

// Resources are those whose objects are stored.
func (s *Store) Resources() []schema.GroupResource { return slices.Collect(maps.Keys(s.versions)) }

// Anew writes all records of a resource anew that its transformer would write otherwise now: those that are not encrypted, or with an older key. What they hold
// stays as it is, byte for byte, whatever the API would say of it today, and so does when they end. One that cannot be read or written does not keep the others
// from it: the error names those that could not.
func (s *Store) Anew(ctx context.Context, resource schema.GroupResource) (seen int, err error) {
	// Without the slash the folder of pods would have that of podtemplates in it.
	begin := prefix + resourcePrefix(resource) + "/"
	end := clientv3.GetPrefixRangeEnd(begin)
	transformer := s.transformer(resource)
	var failed []error
	unnamed := 0
	for {
		found, err := s.client.KV.Get(ctx, begin, clientv3.WithRange(end), clientv3.WithLimit(page))
		if err != nil {
			return seen, fmt.Errorf("read %s: %w", resource, err)
		}
		for _, kv := range found.Kvs {
			seen++
			err := s.anew(ctx, transformer, record{string(kv.Key), kv.Value, kv.ModRevision, clientv3.LeaseID(kv.Lease)})
			switch {
			case err == nil:
			case ctx.Err() != nil:
				return seen, ctx.Err()
			case len(failed) < namedFailures:
				failed = append(failed, fmt.Errorf("%s: %w", kv.Key, err))
			default:
				unnamed++
			}
			begin = string(kv.Key) + "\x00"
		}
		if !found.More || len(found.Kvs) == 0 {
			break
		}
	}
	if unnamed > 0 {
		failed = append(failed, fmt.Errorf("and %d more", unnamed))
	}
	return seen, errors.Join(failed...)
}

// record is what etcd has under a key.
type record struct {
	key      string
	value    []byte
	revision int64
	lease    clientv3.LeaseID
}

// anew writes a record anew if need be. One that was changed or deleted meanwhile was written anew by whoever did that.
func (s *Store) anew(ctx context.Context, transformer value.Transformer, r record) error {
	where := value.DefaultContext(r.key)
	plain, stale, err := transformer.TransformFromStorage(ctx, r.value, where)
	if err != nil || !stale {
		return err
	}
	written, err := transformer.TransformToStorage(ctx, plain, where)
	if err != nil {
		return err
	}
	_, err = s.client.Kubernetes.OptimisticPut(ctx, r.key, written, r.revision, kubernetes.PutOptions{LeaseID: r.lease})
	return err
}
