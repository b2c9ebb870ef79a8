package crash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/nftables"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"monopod.dev/monopod/test/harness"
)

// book is what the events of pods have told. A watch goes on where the last one ended, so no moment is missed.
type book struct {
	mu       sync.Mutex
	pods     map[types.UID]*corev1.Pod
	restarts map[types.UID]int32 // of all pods that ever were
	bounds   map[string]int      // of how many pods a workload may have at a time
	events   int
	gaps     int // watches that had to begin anew
}

func newBook() *book {
	return &book{pods: map[types.UID]*corev1.Pod{}, restarts: map[types.UID]int32{}, bounds: map[string]int{}}
}

func (b *book) bound(app string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bounds[app] = n
}

// raise is for before more pods are asked for. When they become fewer is seen at the next rest.
func (b *book) raise(app string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bounds[app] = max(b.bounds[app], n)
}

// watch reads the events of all pods until the storm ends.
func (s *storm) watch() {
	s.running.Go(func() {
		version := ""
		for s.ctx.Err() == nil {
			err := s.follow(&version)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				version = ""
				s.book.mu.Lock()
				s.book.gaps++
				s.book.mu.Unlock()
			} else if err != nil && s.ctx.Err() == nil && !unheard(err) {
				s.fault("the watch of pods: %v", err)
			}
			select {
			case <-s.ctx.Done():
			case <-time.After(20 * time.Millisecond): // until somebody listens
			}
		}
	})
}

// follow lists pods, where it has to, and takes what comes then.
func (s *storm) follow(version *string) error {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	pods := s.client.CoreV1().Pods(metav1.NamespaceAll)
	if *version == "" {
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		s.book.mu.Lock()
		clear(s.book.pods)
		s.book.mu.Unlock()
		for i := range list.Items {
			s.see(watch.Added, &list.Items[i])
		}
		*version = list.ResourceVersion
	}
	w, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: *version, AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			err := apierrors.FromObject(e.Object)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return err
			}
			return errors.New(err.Error()) // the client's own words for a stream that was cut off
		}
		p, ok := e.Object.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("the watch of pods tells of a %T", e.Object)
		}
		*version = p.ResourceVersion
		if e.Type != watch.Bookmark {
			s.see(e.Type, p)
		}
	}
	return nil
}

// see takes an event, and holds what there is then against what may be.
func (s *storm) see(event watch.EventType, p *corev1.Pod) {
	b := s.book
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events++
	if event == watch.Deleted {
		delete(b.pods, p.UID)
	} else {
		b.pods[p.UID] = p
	}
	for _, c := range p.Status.ContainerStatuses {
		b.restarts[p.UID] = max(b.restarts[p.UID], c.RestartCount)
	}
	app := p.Labels["app"]
	// One that is deleted before its container has begun has failed, too.
	if p.Status.Phase == corev1.PodFailed && p.DeletionTimestamp == nil {
		s.fault("pod %s has failed: %s %s %+v", p.Name, p.Status.Reason, p.Status.Message, p.Status.ContainerStatuses)
	}
	var active []string
	hashes, addresses := map[string]bool{}, map[string]string{}
	for _, o := range b.pods {
		over := o.Status.Phase == corev1.PodFailed || o.Status.Phase == corev1.PodSucceeded
		if ip := o.Status.PodIP; ip != "" && !over && o.DeletionTimestamp == nil {
			if addresses[ip] != "" {
				s.fault("pods %s and %s have the address %s", o.Name, addresses[ip], ip)
			}
			addresses[ip] = o.Name
		}
		if o.Namespace != p.Namespace || o.Labels["app"] != app {
			continue
		}
		if o.Name == p.Name && o.UID != p.UID {
			s.fault("there are two pods %s at a time: %s and %s", p.Name, o.UID, p.UID)
		}
		if !over {
			hashes[o.Labels["pod-template-hash"]] = true
		}
		if !over && o.DeletionTimestamp == nil {
			active = append(active, o.Name)
		}
	}
	if most, ok := b.bounds[app]; ok && len(active) > most {
		s.fault("%s may have %d pods, and has %v", app, most, active)
	}
	if app == "recreated" && len(hashes) > 1 {
		s.fault("%s is recreated, and has pods of two templates: %v", app, slices.Collect(maps.Keys(hashes)))
	}
}

// converged waits until all is as it was wanted last, while nobody changes anything.
func (s *storm) converged(when string) {
	s.Helper()
	for _, w := range workloads {
		s.eventually(when+": "+w.kind+" "+w.name, func() (bool, string) {
			st, err := s.state(s.ctx, w)
			if err != nil {
				return false, err.Error()
			}
			s.read(w.kind+" "+w.name, s.wants.entry(w.name), st.version)
			if !st.complete {
				return false, st.told
			}
			pods, err := s.client.CoreV1().Pods(w.namespace).List(s.ctx, metav1.ListOptions{LabelSelector: "app=" + w.name})
			if err != nil || len(pods.Items) != int(st.replicas) {
				return false, fmt.Sprintf("it wants %d pods, and there are %d; %v", st.replicas, len(pods.Items), err)
			}
			for _, p := range pods.Items {
				if v := envOf(&p, "V"); v != fmt.Sprint(st.version) {
					s.fault("%s: pod %s is of template %s, and not of %d", w.name, p.Name, v, st.version)
				}
			}
			s.book.bound(w.name, int(st.replicas)+boundBeyond(w))
			return true, ""
		})
	}
	s.eventually(when+": jobs finish", func() (bool, string) {
		jobs, err := s.client.BatchV1().Jobs(open).List(s.ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		for i := range jobs.Items {
			if j := &jobs.Items[i]; !s.finished(j) && j.DeletionTimestamp == nil {
				return false, fmt.Sprintf("%s: %+v", j.Name, j.Status)
			}
		}
		return true, ""
	})
	s.eventually(when+": services of the packet filter", s.servicesAreThose)
	s.resolved(when)
	s.served(when)
	s.startsAreThose(when)
}

// boundBeyond is how many pods a workload may have beyond its replicas.
func boundBeyond(w rolled) int {
	if w.kind == "deployment" && w.name != "recreated" {
		return surge
	}
	return 0
}

func envOf(p *corev1.Pod, name string) string {
	for _, v := range p.Spec.Containers[0].Env {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

// eventually is harness.Eventually with more time, as many things have to come to their end one after the other.
func (s *storm) eventually(what string, cond func() (bool, string)) {
	s.Helper()
	for end := time.Now().Add(patience * harness.SlowFactor()); ; time.Sleep(50 * time.Millisecond) {
		ok, seen := cond()
		if ok {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("%s life %d: %s: not within the time; last seen: %s\n%s", time.Now().Format("15:04:05.000"), s.lives, what, seen, s.logged())
		}
	}
}

// servicesAreThose says whether the packet filter has elements for those services that there are, and for no others.
func (s *storm) servicesAreThose() (bool, string) {
	var want []string
	list, err := s.client.CoreV1().Services(metav1.NamespaceAll).List(s.ctx, metav1.ListOptions{})
	if err != nil {
		return false, err.Error()
	}
	for _, svc := range list.Items {
		if svc.Spec.ClusterIP != corev1.ClusterIPNone {
			want = append(want, svc.Namespace+"/"+svc.Name)
		}
	}
	have, err := s.filtered()
	if err != nil {
		return false, err.Error()
	}
	slices.Sort(want)
	return slices.Equal(want, have), fmt.Sprintf("there are %v, and in the packet filter %v", want, have)
}

// filtered are the services of which the packet filter has elements.
func (s *storm) filtered() ([]string, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, err
	}
	table := &nftables.Table{Name: s.n.Bridge + "-services", Family: nftables.TableFamilyINet}
	names := map[string]bool{}
	for _, set := range []string{"services4", "outside4"} {
		found, err := conn.GetSetByName(table, set)
		if err != nil {
			return nil, fmt.Errorf("set %s: %w", set, err)
		}
		elements, err := conn.GetSetElements(found)
		if err != nil {
			return nil, fmt.Errorf("elements of %s: %w", set, err)
		}
		for _, e := range elements {
			name, _, _ := strings.Cut(e.Comment, ":")
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// startsAreThose holds how often containers have begun against what the API has told.
func (s *storm) startsAreThose(when string) {
	s.Helper()
	for _, f := range s.notes("faults") {
		s.fault("%s: an inhabitant says: %s", when, strings.Join(f, " "))
	}
	starts := map[string]int{}
	names := map[string]string{}
	for _, f := range s.notes("starts") {
		starts[f[0]]++
		names[f[0]] = f[1]
	}
	s.book.mu.Lock()
	for uid, n := range starts {
		// What was seen last of a pod that has gone may be from before its container began anew.
		if names[uid] != "fails" && n != 1 {
			s.fault("%s: the container of pod %s (%s) was started %d times, and the API says %d restarts", when, names[uid], uid, n, s.book.restarts[types.UID(uid)])
		}
	}
	s.traffic.set("pods", len(starts))
	s.traffic.set("events of pods", s.book.events)
	s.traffic.set("watches that began anew", s.book.gaps)
	s.book.mu.Unlock()
	s.eventually(when+": a container that fails is started as often as the API says", func() (bool, string) {
		p, err := s.client.CoreV1().Pods(open).Get(s.ctx, "fails", metav1.GetOptions{})
		if err != nil || len(p.Status.ContainerStatuses) != 1 {
			return false, fmt.Sprint(err)
		}
		n := 0
		for _, f := range s.notes("starts") {
			if f[0] == string(p.UID) {
				n++
			}
		}
		s.traffic.set("starts of a container that fails", n)
		return n == int(p.Status.ContainerStatuses[0].RestartCount)+1, fmt.Sprintf("%d times, and the API says %+v", n, p.Status.ContainerStatuses[0])
	})
}

// finish deletes everything, and looks for what is left.
func (s *storm) finish() {
	s.Helper()
	s.stop()
	s.running.Wait()
	s.ctx = s.Context()
	s.minutes()
	s.n.Kubectl("delete", "namespace", open, closed, "--timeout=120s")
	pods, err := s.client.CoreV1().Pods(metav1.NamespaceAll).List(s.ctx, metav1.ListOptions{})
	if err != nil || len(pods.Items) != 0 {
		s.Errorf("of pods there are %v, %v", pods, err)
	}
	for _, dir := range []string{"data/pods", "run/sandboxes", "run/containers", "data/containers"} {
		s.eventually("nothing is in "+dir, func() (bool, string) {
			return nothingIn(filepath.Join(s.n.Dir, dir))
		})
	}
	s.eventually("services of the packet filter in the end", s.servicesAreThose)
	s.eventually("policies of the packet filter in the end", func() (bool, string) {
		conn, err := nftables.New()
		if err != nil {
			return false, err.Error()
		}
		tables, err := conn.ListTables()
		return err == nil && !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == s.n.Bridge+"-policy" }), fmt.Sprint(tables, err)
	})
	s.n.Stop()
	s.fsck()
}

// minutes holds the cron job against the minutes that have gone by: each has had one job, which ran once.
func (s *storm) minutes() {
	s.Helper()
	seen := map[int]int{}
	for _, f := range s.notes("work") {
		var minute int
		if _, err := fmt.Sscanf(f[0], "minute-%d", &minute); err == nil {
			seen[minute]++
		}
	}
	all := slices.Sorted(maps.Keys(seen))
	for i, m := range all {
		if seen[m] != 1 {
			s.Errorf("the cron job's work of minute %d was done %d times", m, seen[m])
		}
		if i > 0 && m != all[i-1]+1 {
			s.Errorf("the cron job has done nothing between minutes %d and %d", all[i-1], m)
		}
	}
	s.Logf("%d minutes of the cron job", len(all))
}
