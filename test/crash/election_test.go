package crash

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"monopod.dev/monopod/internal/controllers"
	"monopod.dev/monopod/test/apitest"
	"monopod.dev/monopod/test/harness"
)

// pair are two API servers on one etcd, each a process.
type pair struct {
	*testing.T
	nodes [2]*harness.Node
	// audits are the files in which each writes down who has written what.
	audits [2]string
}

const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete, Panic]
rules:
- {level: None, verbs: [get, list, watch]}
- {level: Metadata}
`

func startPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{T: t}
	url := apitest.Etcd(t)
	for i := range p.nodes {
		dir := t.TempDir()
		policy := filepath.Join(dir, "policy.yaml")
		p.audits[i] = filepath.Join(dir, "audit.log")
		if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"--etcd-servers", url, "--leader-elect-lease-duration", "6s", "--audit-policy-file", policy, "--audit-log-path", p.audits[i]}
		if i > 0 {
			args = append(args, "--service-cidr", p.nodes[0].ServiceCIDR)
		}
		p.nodes[i] = harness.NewNode(t, harness.Options{Command: "apiserver", Args: args})
		if i > 0 {
			apitest.CopyKeys(t, p.nodes[0].Dir+"/data", p.nodes[i].Dir+"/data")
		}
		p.nodes[i].Start()
	}
	return p
}

func (p *pair) client(i int) kubernetes.Interface {
	p.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", p.nodes[i].Kubeconfig())
	if err != nil {
		p.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		p.Fatal(err)
	}
	return client
}

// awaitLeader asks one of the two who acts, until it is one that is right.
func (p *pair) awaitLeader(ask int, right func(leader int) bool) (leader int) {
	p.Helper()
	client := p.client(ask)
	harness.Eventually(p, "one of them acts", func() (bool, string) {
		l, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(context.Background(), controllers.LeaseName, metav1.GetOptions{})
		if err != nil || l.Spec.HolderIdentity == nil {
			return false, fmt.Sprint(err)
		}
		leader = slices.IndexFunc(p.nodes[:], func(n *harness.Node) bool { return strings.HasPrefix(*l.Spec.HolderIdentity, n.Name+"_") })
		return leader >= 0 && right(leader), *l.Spec.HolderIdentity
	})
	return leader
}

// rollout is a deployment, watched at one API server. Its pods are ready as soon as they are there.
type rollout struct {
	*testing.T
	client kubernetes.Interface
	name   string

	mu   sync.Mutex
	seen map[string]map[types.UID]bool // those that were ever there, by image
	now  map[types.UID]bool            // those that are, and are not going
	told chan struct{}
}

const podsOfRollout = 6

// newRollout makes a deployment, or takes over the watch of one that is there.
func newRollout(t *testing.T, client kubernetes.Interface, name, image string) *rollout {
	t.Helper()
	r := &rollout{T: t, client: client, name: name, seen: map[string]map[types.UID]bool{}, now: map[types.UID]bool{}, told: make(chan struct{}, 1)}
	w, err := client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.follow(w)
	}()
	t.Cleanup(func() { w.Stop(); <-ended })
	(&apitest.API{TB: t, Client: client}).Agent(func(*corev1.Pod) bool { return true })
	one, of, replicas := intstr.FromInt32(1), map[string]string{"app": name}, int32(podsOfRollout)
	_, err = client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: of},
		Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &one, MaxUnavailable: &one}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: of}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// follow holds each event against what may be: never more pods than podsOfRollout and one.
func (r *rollout) follow(w watch.Interface) {
	for e := range w.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		if !ok {
			return
		}
		r.mu.Lock()
		image := pod.Spec.Containers[0].Image
		if r.seen[image] == nil {
			r.seen[image] = map[types.UID]bool{}
		}
		r.seen[image][pod.UID] = true
		if r.now[pod.UID] = true; e.Type == watch.Deleted || pod.DeletionTimestamp != nil {
			delete(r.now, pod.UID)
		}
		if len(r.now) > podsOfRollout+1 {
			r.Errorf("%d pods after %s of %s, want %d at the most", len(r.now), e.Type, pod.Name, podsOfRollout+1)
		}
		r.mu.Unlock()
		select {
		case r.told <- struct{}{}:
		default:
		}
	}
}

// made is how many pods of an image were ever there.
func (r *rollout) made(image string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen[image])
}

func (r *rollout) roll(image string) {
	r.Helper()
	if _, err := r.client.AppsV1().Deployments("default").Patch(context.Background(), r.name, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, image), metav1.PatchOptions{}); err != nil {
		r.Fatal(err)
	}
}

// complete waits until all pods are of an image, none of which was made twice, and the other replica sets have none.
func (r *rollout) complete(image string) {
	r.Helper()
	var last appsv1.DeploymentStatus
	harness.Eventually(r, "the rollout is complete", func() (bool, string) {
		d, err := r.client.AppsV1().Deployments("default").Get(context.Background(), r.name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		last = d.Status
		return last.ObservedGeneration == d.Generation && last.UpdatedReplicas == podsOfRollout && last.Replicas == podsOfRollout && last.AvailableReplicas == podsOfRollout, fmt.Sprintf("%+v", last)
	})
	if n := r.made(image); n != podsOfRollout {
		r.Errorf("%d pods of %s were made, want %d", n, image, podsOfRollout)
	}
	sets, err := r.client.AppsV1().ReplicaSets("default").List(context.Background(), metav1.ListOptions{LabelSelector: "app=" + r.name})
	if err != nil {
		r.Fatal(err)
	}
	for i := range sets.Items {
		s := &sets.Items[i]
		if is := s.Spec.Template.Spec.Containers[0].Image; (is == image) != (s.Status.Replicas == podsOfRollout) || (is != image) != (*s.Spec.Replicas == 0 && s.Status.Replicas == 0) {
			r.Errorf("the replica set of %s is to have %d pods and has %d", is, *s.Spec.Replicas, s.Status.Replicas)
		}
	}
}

// TestControllersOfTwoAPIServers: the controllers of one of two API servers act. When it is killed in the midst of a rollout those of the other one go on with it,
// and when it ends they begin at once; one that was stopped does nothing any more when it goes on.
func TestControllersOfTwoAPIServers(t *testing.T) {
	p := startPair(t)
	leader := p.awaitLeader(0, func(int) bool { return true })
	other := 1 - leader
	t.Run("killed", func(t *testing.T) {
		r := newRollout(t, p.client(other), "killed", "one")
		r.complete("one")
		r.roll("two")
		for r.made("two") < 2 {
			select {
			case <-r.told:
			case <-time.After(time.Minute * harness.SlowFactor()):
				t.Fatal("no pods of the new template come")
			}
		}
		p.nodes[leader].Kill()
		p.awaitLeader(other, func(is int) bool { return is == other })
		r.complete("two")
	})
	p.nodes[leader].Start()
	t.Run("stopped", func(t *testing.T) {
		other, leader := leader, other // it acts still, and the one that was killed stands by
		r := newRollout(t, p.client(other), "stopped", "one")
		r.complete("one")
		signal(t, p.nodes[leader].PID(), syscall.SIGSTOP)
		stopped := true
		defer func() {
			if stopped {
				signal(t, p.nodes[leader].PID(), syscall.SIGCONT)
			}
		}()
		p.awaitLeader(other, func(is int) bool { return is == other })
		r.roll("two")
		r.complete("two")
		began := time.Now()
		stopped = false
		signal(t, p.nodes[leader].PID(), syscall.SIGCONT)
		harness.Eventually(t, "it stands by", func() (bool, string) {
			log := p.nodes[leader].Log()
			at := strings.LastIndex(log, "these controllers act no more")
			return at >= 0 && strings.Contains(log[at:], "these stand by"), log[max(0, len(log)-2000):]
		})
		for _, what := range written(t, p.audits[leader], began) {
			t.Errorf("when it went on it wrote %s", what)
		}
		r.complete("two")
	})
	t.Run("ended", func(t *testing.T) {
		w, err := p.client(other).CoordinationV1().Leases(metav1.NamespaceSystem).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + controllers.LeaseName})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		go p.nodes[leader].Stop()
		free := false
		for e := range w.ResultChan() {
			switch holder := *e.Object.(*coordinationv1.Lease).Spec.HolderIdentity; {
			case holder == "":
				free = true
			case strings.HasPrefix(holder, p.nodes[other].Name+"_"):
				if !free {
					t.Error("the lease was not let go")
				}
				return
			}
		}
		t.Error("the watch of the lease ended")
	})
}

// written is what controllers have asked to be written since a time, by an audit log; their lease and events left out.
func written(t *testing.T, file string, since time.Time) (all []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb, RequestURI         string
			User                     struct{ Username string }
			ObjectRef                struct{ Resource string }
			RequestReceivedTimestamp metav1.MicroTime
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // the last line, as it is written
		}
		if e.User.Username == "system:monopod:controllers" && e.ObjectRef.Resource != "leases" && e.ObjectRef.Resource != "events" && e.RequestReceivedTimestamp.After(since) {
			all = append(all, e.Verb+" "+e.RequestURI)
		}
	}
	return all
}
