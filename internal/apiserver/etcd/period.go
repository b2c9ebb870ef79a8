package etcd

import (
	"time"
	_ "unsafe" // for linkname
)

// resyncPeriod is how often etcd looks for watches that are behind: those that begin at an old revision, and those that have not kept
// up. It does so whether there are any or not, ten times a second as it comes, and ten wake-ups a second are most of what an idle API server
// would cost. etcd has no setting for it; the variable is there for its own tests. With a second, a watch from an old revision, as of a
// client that lists events and then watches them, gets its first events up to a second later.
//
//go:linkname resyncPeriod go.etcd.io/etcd/server/v3/storage/mvcc.watchResyncPeriod
var resyncPeriod time.Duration

// eventBuffer is how many events a watch may be behind before it is looked after that slowly: 128 as it comes.
//
//go:linkname eventBuffer go.etcd.io/etcd/server/v3/storage/mvcc.chanBufLen
var eventBuffer int

// Not by Start: a second server of the process would change them under the first.
func init() { //nolint:gochecknoinits // it has to be before anybody starts a server, and once
	resyncPeriod, eventBuffer = time.Second, 1024
}
