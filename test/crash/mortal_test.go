package crash

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/test/harness"
)

// mortal is an API server with its controllers, which dies at one of their steps and is started again.
type mortal struct {
	*testing.T
	n    *harness.Node
	step int
	died <-chan struct{}
}

// atEachStep lets a node die at each step of a controller, one after the other (in short tests at some of them), while something is done, which gets namespaces
// of its own. There are at least so many steps.
func atEachStep(t *testing.T, n *harness.Node, controller string, least int, do func(m *mortal, client func() kubernetes.Interface, namespace string)) {
	for step := 1; ; step += stride() {
		n.Setenv(failpoint.EnvVar, fmt.Sprintf("controllers/%s/...=kill-at:%d", controller, step))
		n.Start()
		m := &mortal{t, n, step, n.Died()}
		n.Setenv(failpoint.EnvVar, "")
		namespace := fmt.Sprintf("%s-%d", controller, step)
		m.await("a namespace with an account", func(ctx context.Context) (bool, string) {
			_, err := m.client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
			_, aerr := m.client().CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
			return aerr == nil, fmt.Sprint(err, aerr)
		})
		do(m, m.client, namespace)
		// It may be dying just now, at the very last step.
		n.Kill()
		if passed := m.died != nil && !strings.Contains(n.Log(), "failpoint controllers/"); passed || t.Failed() {
			t.Logf("%d steps", step-1)
			if step <= least && !t.Failed() {
				t.Errorf("only %d steps were found", step-1)
			}
			return
		}
	}
}

// client is one of the process that runs.
func (m *mortal) client() kubernetes.Interface {
	m.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", m.n.Kubeconfig())
	if err != nil {
		m.Fatal(err)
	}
	config.QPS, config.Timeout = -1, time.Minute
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		m.Fatal(err)
	}
	return client
}

// await waits until something is so, and starts the node again where it dies meanwhile.
func (m *mortal) await(what string, is func(context.Context) (bool, string)) {
	m.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		select {
		case <-m.died:
			m.n.Start()
			m.died = nil
		default:
		}
		ok, otherwise := is(m.Context())
		if ok {
			return
		}
		if time.Now().After(end) {
			m.Fatalf("step %d: %s: %s\n%s", m.step, what, otherwise, m.n.Log()[max(0, len(m.n.Log())-4000):])
		}
	}
}
