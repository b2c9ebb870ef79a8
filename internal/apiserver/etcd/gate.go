package etcd

import (
	"context"
	"math"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// gate is etcd's KV service for the clients of this process. It lets writes in as far as the limits allow, and tells the keeper of
// them. etcd's own quota would refuse updates as well as new objects, and count free pages.
type gate struct {
	pb.KVServer
	keeper *keeper
}

// Put implements pb.KVServer.
func (g *gate) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	end, err := g.keeper.enter(ctx, r)
	if err != nil {
		return nil, err
	}
	defer end()
	return g.KVServer.Put(ctx, r)
}

// Txn implements pb.KVServer.
func (g *gate) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	end, err := g.keeper.enter(ctx, r)
	if err != nil {
		return nil, err
	}
	defer end()
	return g.KVServer.Txn(ctx, r)
}

// DeleteRange implements pb.KVServer.
func (g *gate) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	end, err := g.keeper.enter(ctx, r)
	if err != nil {
		return nil, err
	}
	defer end()
	return g.KVServer.DeleteRange(ctx, r)
}

// Compact implements pb.KVServer.
func (g *gate) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	end, err := g.keeper.enter(ctx, r)
	if err != nil {
		return nil, err
	}
	defer end()
	return g.KVServer.Compact(ctx, r)
}

// door is the gate for who comes through the socket. It is open until there is a keeper.
type door struct{ keeper atomic.Pointer[keeper] }

// intercept is a grpc.UnaryServerInterceptor.
func (d *door) intercept(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if k := d.keeper.Load(); k != nil {
		end, err := k.enter(ctx, req)
		if err != nil {
			return nil, err
		}
		defer end()
	}
	return handler(ctx, req)
}

// enter lets a request in, if there is room for what it writes, for which it may wait. end is called when it has been answered.
func (k *keeper) enter(ctx context.Context, req any) (end func(), err error) {
	var w write
	switch r := req.(type) {
	case *pb.PutRequest:
		w = write{bytes: cost(r), key: r.GetKey(), value: len(r.GetValue())}
	case *pb.TxnRequest:
		w = writeOf(r)
	case *pb.DeleteRangeRequest:
		w.deletes = true
	case *pb.CompactionRequest:
		return func() { k.wrote(0) }, nil
	}
	if w.bytes == 0 && !w.deletes {
		return func() {}, nil
	}
	if w.bytes > 0 {
		if err := k.admit(ctx, w); err != nil {
			return nil, err
		}
	}
	if w.deletes {
		k.deleted.Store(true)
	}
	return func() { k.wrote(w.bytes) }, nil
}

// write is what a request would put.
type write struct {
	// bytes is what it may take in the file; 0: it puts nothing.
	bytes int64
	// creates: the key is put only if it is not there.
	creates bool
	deletes bool
	// key and value are of a request that puts one.
	key   []byte
	value int
}

// overhead is what a revision takes besides its key and its value, with its part of the tables.
const overhead = 256

func cost(r *pb.PutRequest) int64 { return int64(overhead + len(r.Key) + len(r.Value)) }

// writeOf reads the requests that the API server makes: one put or one deletion, if the key's revision is what it was. Of others only
// the size is known.
func writeOf(r *pb.TxnRequest) write {
	var w write
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			switch {
			case op.GetRequestPut() != nil:
				put := op.GetRequestPut()
				w.bytes += cost(put)
				w.key, w.value = put.Key, len(put.Value)
			case op.GetRequestDeleteRange() != nil:
				w.deletes = true
			case op.GetRequestTxn() != nil:
				inner := writeOf(op.GetRequestTxn())
				w.bytes, w.deletes, w.value = w.bytes+inner.bytes, w.deletes || inner.deletes, math.MaxInt
			}
		}
	}
	if len(r.Compare) == 1 && w.bytes > 0 {
		c := r.Compare[0]
		absent := c.GetTarget() == pb.Compare_MOD && c.GetModRevision() == 0 || c.GetTarget() == pb.Compare_VERSION && c.GetVersion() == 0
		w.creates = absent && c.GetResult() == pb.Compare_EQUAL
	}
	return w
}
