package runtime_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// shared is the node of the tests that break nothing: those of what is refused, and of what is allowed right beside it. Its start and end
// would take most of their time.
var shared struct {
	tb   *outliving
	node *node
}

// sharedNode lends a test the node that such tests share, empty, and takes it back, empty again, when the test ends. It starts with the
// first of them and ends after all tests.
func sharedNode(t *testing.T) *node {
	t.Helper()
	if shared.node == nil {
		shared.tb = &outliving{TB: t}
		n := prepareNode(shared.tb)
		prepared := n.ctx
		n.ctx = context.WithoutCancel(prepared)
		shared.node = startNode(n)
	}
	n := shared.node
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.ctx), 6*patience())
	n.TB, n.ctx = t, ctx
	t.Cleanup(func() {
		defer cancel()
		pods, err := n.rt.ListPodSandbox(n.ctx, &cri.ListPodSandboxRequest{})
		n.check(err)
		for _, p := range pods.GetItems() {
			if _, err := n.rt.RemovePodSandbox(n.ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.GetId()}); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			t.Logf("log of the shared server:\n%s", n.log)
		}
		n.TB = shared.tb
	})
	return n
}

// endShared ends the shared node, if there is one, and says what was wrong with its end.
func endShared() error {
	if shared.tb == nil {
		return nil
	}
	shared.tb.over = true
	for _, f := range slices.Backward(shared.tb.ends) {
		f()
	}
	if shared.tb.failed {
		return fmt.Errorf("the node that tests share did not end well: %q", shared.tb.said)
	}
	return nil
}

// outliving is the test of the shared node: the one that starts it, and then nobody's, until the last of all tests has ended.
type outliving struct {
	testing.TB
	ends   []func()
	over   bool
	failed bool
	said   []string
}

func (o *outliving) Cleanup(f func()) { o.ends = append(o.ends, f) }

func (o *outliving) Helper() {
	if !o.over {
		o.TB.Helper()
	}
}

func (o *outliving) Failed() bool { return o.failed || !o.over && o.TB.Failed() }

func (o *outliving) Logf(format string, args ...any) {
	if !o.over {
		o.TB.Logf(format, args...)
		return
	}
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

func (o *outliving) Error(args ...any) { o.Errorf("%s", fmt.Sprintln(args...)) }

func (o *outliving) Errorf(format string, args ...any) {
	if !o.over {
		o.TB.Errorf(format, args...)
		return
	}
	o.failed = true
	o.said = append(o.said, fmt.Sprintf(format, args...))
}

func (o *outliving) Fatal(args ...any) {
	if !o.over {
		o.TB.Fatal(args...)
	}
	panic(fmt.Sprintln(args...)) // there is no test that could end alone
}

func (o *outliving) Fatalf(format string, args ...any) { o.Fatal(fmt.Sprintf(format, args...)) }
