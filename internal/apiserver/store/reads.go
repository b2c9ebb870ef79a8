package store

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// oneMember reads from an etcd that has no other member. Before a read, etcd makes sure by its log that no other member knows of a newer write; by itself it
// answers a write only after it has applied it, so that a read without this sees all that anybody was told, too. (Watches would tell earlier: package etcd
// keeps their events until then.)
type oneMember struct {
	kubernetes.Interface
	kv clientv3.KV
}

// Get implements kubernetes.Interface.
func (m oneMember) Get(ctx context.Context, key string, opts kubernetes.GetOptions) (kubernetes.GetResponse, error) {
	got, err := m.kv.Get(ctx, key, clientv3.WithRev(opts.Revision), clientv3.WithLimit(1), clientv3.WithSerializable())
	if err != nil {
		return kubernetes.GetResponse{}, err
	}
	resp := kubernetes.GetResponse{Revision: got.Header.Revision}
	if len(got.Kvs) == 1 {
		resp.KV = got.Kvs[0]
	}
	return resp, nil
}
