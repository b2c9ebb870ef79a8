package etcd

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const mib = 1 << 20

func TestLimits(t *testing.T) {
	l := limitsOf(2 << 30)
	for name, c := range map[string]struct{ got, want bool }{
		"little in use":                         {l.compact(1024*mib, 0), false},
		"near the quota":                        {l.compact(1536*mib, 0), true},
		"near the quota, of live objects":       {l.compact(1600*mib, 1536*mib), false},
		"and then more":                         {l.compact(1664*mib, 1536*mib), true},
		"a small file":                          {l.defragment(60*mib, 1*mib, true), false},
		"a file that is mostly free":            {l.defragment(100*mib, 10*mib, false), true},
		"a file that is half free":              {l.defragment(150*mib, 100*mib, true), false},
		"a large one, in a quiet time":          {l.defragment(2048*mib, 400*mib, true), true},
		"a large one, in another":               {l.defragment(2048*mib, 400*mib, false), false},
		"a larger one, in a quiet time":         {l.defragment(2048*mib, 800*mib, true), false},
		"one that would be refused":             {l.defragment(3072*mib, 1900*mib, false), true},
		"one that would be refused, all used":   {l.defragment(3072*mib, 3000*mib, false), false},
		"the least quota, a file beside it":     {limitsOf(MinQuota).defragment(17*mib, 16*mib, true), false},
		"the least quota, a file of free room":  {limitsOf(MinQuota).defragment(17*mib, 2*mib, false), true},
		"an update near the end, a little more": {limitsOf(MinQuota).worth(write{bytes: mib / 4}, 17*mib+mib/2, 17*mib), true},
		"an update, less than it takes":         {limitsOf(MinQuota).worth(write{bytes: mib}, 17*mib, 17*mib-mib/2), false},
		"an update far from the end":            {limitsOf(MinQuota).worth(write{bytes: mib / 4}, 10*mib, 10*mib-mib/2), false},
		"another step":                          {limitsOf(MinQuota).worth(write{bytes: mib / 4, creates: true}, 10*mib, 9*mib), true},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v", name, c.got)
		}
	}
	for _, quota := range []int64{MinQuota, 100 * mib, DefaultQuota, 8 << 30} {
		l := limitsOf(quota)
		if l.pressure+l.step > l.create || l.create+l.step > l.update || l.update+l.step+largest > l.file {
			t.Errorf("the limits of a quota of %s are not in order: %+v", size(quota), l)
		}
	}
}

func TestWriteOf(t *testing.T) {
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("k"), Value: make([]byte, 100)}}}
	remove := &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("k")}}}
	get := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("k")}}}
	compare := func(c clientv3.Cmp) []*pb.Compare { return []*pb.Compare{c.GetCompare()} }
	for name, c := range map[string]struct {
		txn              *pb.TxnRequest
		bytes            int64
		creates, deletes bool
		value            int
	}{
		"create": {&pb.TxnRequest{Compare: compare(clientv3.Compare(clientv3.ModRevision("k"), "=", 0)), Success: []*pb.RequestOp{put}}, 357, true, false, 100},
		"update": {&pb.TxnRequest{Compare: compare(clientv3.Compare(clientv3.ModRevision("k"), "=", 7)), Success: []*pb.RequestOp{put}, Failure: []*pb.RequestOp{get}}, 357, false, false, 100},
		"delete": {&pb.TxnRequest{Compare: compare(clientv3.Compare(clientv3.ModRevision("k"), "=", 7)), Success: []*pb.RequestOp{remove}, Failure: []*pb.RequestOp{get}}, 0, false, true, 0},
		"read":   {&pb.TxnRequest{Success: []*pb.RequestOp{get}}, 0, false, false, 0},
		"two":    {&pb.TxnRequest{Success: []*pb.RequestOp{put, put}}, 714, false, false, 100},
	} {
		if w := writeOf(c.txn); w.bytes != c.bytes || w.creates != c.creates || w.deletes != c.deletes || w.value != c.value {
			t.Errorf("%s: %+v", name, w)
		}
	}
}
