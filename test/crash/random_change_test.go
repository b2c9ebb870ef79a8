package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Where all of it is: what is guarded by policies is in a namespace of its own.
const open, closed = "storm", "closed"

// rolled is a workload whose template changes all the time.
type rolled struct {
	kind, namespace, name string
	// least and most are between what it is scaled.
	least, most int32
}

var workloads = []rolled{
	{"deployment", open, "steady", 3, 3},
	{"deployment", open, "scaled", 2, 4},
	{"deployment", open, "recreated", 2, 2},
	{"deployment", closed, "guarded", 2, 2},
	{"statefulset", open, "set", 2, 3},
	{"daemonset", open, "daemon", 1, 1},
}

// surge is how many pods beyond its replicas a deployment that is not recreated may have.
const surge = 1

// wanted is what was written last. Only who writes an object, and who has all others be calm, look at its entry.
type wanted struct {
	mu sync.Mutex
	of map[string]*want
}

// want is the number in an object: what was acknowledged, and what was tried since. In between is nothing.
type want struct {
	acked, tried int
}

func newWanted() *wanted { return &wanted{of: map[string]*want{}} }

func (w *wanted) entry(name string) *want {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[name] == nil {
		w.of[name] = &want{}
	}
	return w.of[name]
}

// read holds what an object has against what was written.
func (s *storm) read(name string, w *want, got int) {
	if got < w.acked || got > w.tried {
		s.fault("%s has the number %d, and %d was acknowledged, %d tried: a write is lost", name, got, w.acked, w.tried)
	}
	w.acked, w.tried = got, got
}

// settleDown makes what is there from the beginning to the end.
func (s *storm) settleDown() {
	s.Helper()
	for _, ns := range []string{open, closed} {
		s.n.Kubectl("create", "namespace", ns)
	}
	objects := []string{
		s.policy("never", `{"podSelector": {}}`),
		s.policy("friends", `{"podSelector": {"matchLabels": {"app": "vault"}}, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "`+open+`"}}, "podSelector": {"matchLabels": {"app": "friend"}}}]}]}`),
		s.service(open, "kept", `"type": "NodePort", "selector": {"app": "anchor"}`),
		s.service(open, "near", `"clusterIP": "None", "selector": {"app": "anchor"}`),
		s.service(open, "sticky", `"sessionAffinity": "ClientIP", "selector": {"app": "anchor"}`),
		s.service(open, "steady", `"selector": {"app": "steady"}`),
		s.service(open, "scaled", `"type": "NodePort", "selector": {"app": "scaled"}`),
		s.service(open, "swing", `"selector": {"app": "steady"}`),
		s.service(open, "set", `"clusterIP": "None", "selector": {"app": "set"}`),
		s.service(closed, "vault", `"selector": {"app": "vault"}`),
		fmt.Sprintf(`{"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "minute", "namespace": %q}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"backoffLimit": 0, "template": {
			"spec": %s}}}}}`, open, s.podSpec("minute", "work", `"restartPolicy": "Never",`)),
		s.alone(open, "anchor", "serve"), s.alone(open, "client", "serve"), s.alone(open, "thief", "serve"), s.alone(open, "friend", "serve"), s.alone(closed, "vault", "serve"),
		s.alone(open, "fails", "fail"),
	}
	for _, name := range counters {
		objects = append(objects, fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": %q, "namespace": %q}, "data": {"n": "0"}}`, name, open))
	}
	for _, w := range workloads {
		more := fmt.Sprintf(`"replicas": %d, "strategy": {"rollingUpdate": {"maxSurge": %d, "maxUnavailable": 1}}`, w.least, surge)
		switch {
		case w.name == "recreated":
			more = fmt.Sprintf(`"replicas": %d, "strategy": {"type": "Recreate"}`, w.least)
		case w.kind == "statefulset":
			more = fmt.Sprintf(`"replicas": %d, "serviceName": "set"`, w.least)
		case w.kind == "daemonset":
			more = `"updateStrategy": {"type": "RollingUpdate"}`
		}
		kind := map[string]string{"deployment": "Deployment", "statefulset": "StatefulSet", "daemonset": "DaemonSet"}[w.kind]
		objects = append(objects, fmt.Sprintf(`{"apiVersion": "apps/v1", "kind": %q, "metadata": {"name": %[2]q, "namespace": %q}, "spec": {%s, "revisionHistoryLimit": 2, "selector": {"matchLabels": {"app": %[2]q}},
			"template": {"metadata": {"labels": %[5]s}, "spec": %[6]s}}}`, kind, w.name, w.namespace, more, labels(w.name), s.podSpec(w.name, "serve", "")))
		s.book.bound(w.name, int(w.least)+surge)
	}
	s.eventually("all is applied", func() (bool, string) { // a slow disk may take longer than the API server waits
		_, err := s.n.TryKubectl(`{"apiVersion": "v1", "kind": "List", "items": [`+strings.Join(objects, ",\n")+`]}`, "apply", "-f", "-")
		return err == nil, fmt.Sprint(err)
	})
	s.n.Kubectl("-n", open, "wait", "--for=condition=Ready", "pod/anchor", "pod/client", "pod/thief", "pod/friend", "--timeout=120s")
	s.n.Kubectl("-n", closed, "wait", "--for=condition=Ready", "pod/vault", "--timeout=120s")
}

func labels(app string) string {
	if app == "anchor" || app == "steady" {
		return fmt.Sprintf(`{"app": %q, "mixed": "yes"}`, app)
	}
	return fmt.Sprintf(`{"app": %q}`, app)
}

// alone is a pod that is nobody's.
func (s *storm) alone(namespace, name, does string) string {
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q, "namespace": %q, "labels": %s}, "spec": %s}`, name, namespace, labels(name), s.podSpec(name, does, ""))
}

// podSpec is that of an inhabitant.
func (s *storm) podSpec(app, does, more string) string {
	env := fmt.Sprintf(`{"name": "UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}, {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
		{"name": "APP", "value": %q}, {"name": "V", "value": "0"}`, app)
	switch app {
	case "set":
		env += `, {"name": "LOCK", "value": "$(POD)"}`
	case "vault":
		env += `, {"name": "GUARDED", "value": "from thieves"}`
	case "guarded":
		env += `, {"name": "GUARDED", "value": "all"}`
	}
	if does == "work" {
		env += `, {"name": "WORK", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-name']"}}}`
	}
	return fmt.Sprintf(`{%s "terminationGracePeriodSeconds": 30, "enableServiceLinks": false, "volumes": [{"name": "out", "hostPath": {"path": %q}}],
		"containers": [{"name": "c", "image": %q, "imagePullPolicy": "Never", "args": [%q], "volumeMounts": [{"name": "out", "mountPath": "/out"}], "env": [%s]}]}`,
		more, s.out, inhabitant, does, env)
}

func (s *storm) service(namespace, name, spec string) string {
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": %q, "namespace": %q}, "spec": {%s,
		"ports": [{"name": "tcp", "port": 80, "targetPort": 8080}, {"name": "udp", "port": 80, "targetPort": 8080, "protocol": "UDP"}]}}`, name, namespace, spec)
}

func (s *storm) policy(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": %q, "namespace": %q}, "spec": %s}`, name, closed, spec)
}

// change has everything change.
func (s *storm) change() {
	for _, w := range workloads {
		s.again("who changes "+w.name, 2*time.Second, func(ctx context.Context, rnd *rand.Rand) error { return s.roll(ctx, rnd, w) })
	}
	for _, name := range counters {
		s.again("who counts "+name, 50*time.Millisecond, func(ctx context.Context, _ *rand.Rand) error { return s.count(ctx, name) })
	}
	for _, name := range []string{"job-a", "job-b"} {
		h := &jobHand{storm: s, prefix: name}
		s.again("who makes "+name, 400*time.Millisecond, h.step)
	}
	s.again("who makes services", 400*time.Millisecond, s.changeServices)
	s.again("who swings", 300*time.Millisecond, s.swing)
	s.again("who changes policies", 200*time.Millisecond, s.changePolicies)
}

// roll gives a workload another template, and another scale where it may have one.
func (s *storm) roll(ctx context.Context, rnd *rand.Rand, w rolled) error {
	now, err := s.state(ctx, w)
	if err != nil {
		return err
	}
	want := s.wants.entry(w.name)
	s.read(w.kind+" "+w.name, want, now.version)
	replicas := w.least + rnd.Int32N(w.most-w.least+1)
	scale := ""
	if w.kind != "daemonset" {
		scale = fmt.Sprintf(`"replicas": %d,`, replicas)
	}
	s.book.raise(w.name, int(replicas)+surge)
	want.tried++
	patch := fmt.Appendf(nil, `{"spec": {%s "template": {"spec": {"containers": [{"name": "c", "env": [{"name": "V", "value": "%d"}]}]}}}}`, scale, want.tried)
	apps := s.client.AppsV1()
	switch w.kind {
	case "deployment":
		_, err = apps.Deployments(w.namespace).Patch(ctx, w.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	case "statefulset":
		_, err = apps.StatefulSets(w.namespace).Patch(ctx, w.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	default:
		_, err = apps.DaemonSets(w.namespace).Patch(ctx, w.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	}
	if err == nil {
		want.acked = want.tried
	}
	return err
}

// rolledState is how far a workload is.
type rolledState struct {
	version  int
	replicas int32
	complete bool
	told     string
}

func (s *storm) state(ctx context.Context, w rolled) (st rolledState, err error) {
	var template corev1.PodTemplateSpec
	apps := s.client.AppsV1()
	switch w.kind {
	case "deployment":
		var d *appsv1.Deployment
		if d, err = apps.Deployments(w.namespace).Get(ctx, w.name, metav1.GetOptions{}); err != nil {
			return st, err
		}
		template, st.replicas, st.told = d.Spec.Template, *d.Spec.Replicas, fmt.Sprintf("generation %d: %+v", d.Generation, d.Status)
		have := d.Status
		st.complete = have.ObservedGeneration == d.Generation && have.Replicas == st.replicas && have.UpdatedReplicas == st.replicas && have.AvailableReplicas == st.replicas
	case "statefulset":
		var d *appsv1.StatefulSet
		if d, err = apps.StatefulSets(w.namespace).Get(ctx, w.name, metav1.GetOptions{}); err != nil {
			return st, err
		}
		template, st.replicas, st.told = d.Spec.Template, *d.Spec.Replicas, fmt.Sprintf("generation %d: %+v", d.Generation, d.Status)
		have := d.Status
		st.complete = have.ObservedGeneration == d.Generation && have.Replicas == st.replicas && have.CurrentRevision == have.UpdateRevision && have.AvailableReplicas == st.replicas
	default:
		var d *appsv1.DaemonSet
		if d, err = apps.DaemonSets(w.namespace).Get(ctx, w.name, metav1.GetOptions{}); err != nil {
			return st, err
		}
		template, st.replicas, st.told = d.Spec.Template, 1, fmt.Sprintf("generation %d: %+v", d.Generation, d.Status)
		have := d.Status
		st.complete = have.ObservedGeneration == d.Generation && have.UpdatedNumberScheduled == 1 && have.NumberAvailable == 1 && have.CurrentNumberScheduled == 1
	}
	for _, v := range template.Spec.Containers[0].Env {
		if v.Name == "V" {
			st.version, err = strconv.Atoi(v.Value)
		}
	}
	return st, err
}

// counters are config maps with a number, which is written as fast as the API server acknowledges it.
var counters = []string{"count-a", "count-b"}

func (s *storm) count(ctx context.Context, name string) error {
	maps := s.client.CoreV1().ConfigMaps(open)
	m, err := maps.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(m.Data["n"])
	if err != nil {
		return err
	}
	w := s.wants.entry(name)
	s.read(name, w, n)
	w.tried++
	m.Data["n"] = strconv.Itoa(w.tried)
	if _, err = maps.Update(ctx, m, metav1.UpdateOptions{}); err == nil {
		w.acked = w.tried
		s.traffic.add("writes", 1)
	}
	return err
}

// jobHand makes one job after the other.
type jobHand struct {
	*storm
	prefix string
	made   int
	job    *batchv1.Job // nil: the next one is to be made
	acked  bool
	gone   bool // it is deleted, or deletes itself
}

func (h *jobHand) step(ctx context.Context, rnd *rand.Rand) error {
	jobs := h.client.BatchV1().Jobs(open)
	if h.job == nil {
		h.made++
		h.job, h.acked, h.gone = h.next(rnd), false, false
		if h.job.Spec.TTLSecondsAfterFinished != nil {
			h.gone = true
		}
	}
	if !h.acked {
		_, err := jobs.Create(ctx, h.job, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		h.acked = true
		return nil
	}
	now, err := jobs.Get(ctx, h.job.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if !h.gone {
			h.fault("job %s is lost", h.job.Name)
		}
		h.worked(h.job)
		h.job = nil
		return nil
	}
	if err != nil || now.DeletionTimestamp != nil {
		return err
	}
	if !h.finished(now) || now.Spec.TTLSecondsAfterFinished != nil {
		return nil
	}
	h.worked(now)
	policy := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}[rnd.IntN(2)]
	h.gone = true
	err = jobs.Delete(ctx, now.Name, metav1.DeleteOptions{PropagationPolicy: &policy})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (h *jobHand) next(rnd *rand.Rand) *batchv1.Job {
	var job batchv1.Job
	text := fmt.Sprintf(`{"metadata": {"name": "%s-%d"}, "spec": {"backoffLimit": 0, "completions": %d, "parallelism": %d, "completionMode": %q, "template": {"spec": %s}}}`,
		h.prefix, h.made, 1+rnd.IntN(4), 1+rnd.IntN(3), []batchv1.CompletionMode{batchv1.IndexedCompletion, batchv1.NonIndexedCompletion}[rnd.IntN(2)],
		h.podSpec("job", "work", `"restartPolicy": "Never",`))
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		h.fault("%s: %v", text, err)
	}
	if rnd.IntN(3) == 0 {
		job.Spec.TTLSecondsAfterFinished = new(int32)
	}
	return &job
}

// finished holds the status of a job against what there is to be.
func (s *storm) finished(j *batchv1.Job) bool {
	completions := *j.Spec.Completions
	if j.Status.Failed != 0 || j.Status.Succeeded > completions {
		s.fault("job %s has %d completions: %+v", j.Name, completions, j.Status)
	}
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
			if j.Status.Succeeded != completions {
				s.fault("job %s with %d completions is Complete: %+v", j.Name, completions, j.Status)
			}
			return true
		}
	}
	return false
}

// worked holds what the pods of a job that has finished have written down against how many there were to be.
func (s *storm) worked(j *batchv1.Job) {
	indexes, pods := map[string]int{}, map[string]int{}
	var all []string
	for _, f := range s.notes("work") {
		if f[0] == j.Name {
			indexes[f[1]]++
			pods[f[2]]++
			all = append(all, strings.Join(f, " "))
		}
	}
	completions := int(*j.Spec.Completions)
	if indexed := *j.Spec.CompletionMode == batchv1.IndexedCompletion; len(all) != completions || len(pods) != completions || indexed && len(indexes) != completions {
		s.fault("job %s (%s) has %d completions, and this was done for it:\n%s", j.Name, *j.Spec.CompletionMode, completions, strings.Join(all, "\n"))
	}
	s.traffic.add("jobs", 1)
	s.traffic.add("parts of jobs", completions)
}

// notes are the fields of the lines of a file of the inhabitants.
func (s *storm) notes(file string) (all [][]string) {
	raw, err := os.ReadFile(filepath.Join(s.out, file))
	if err != nil && !os.IsNotExist(err) {
		s.fault("%v", err)
	}
	for line := range strings.Lines(string(raw)) {
		all = append(all, strings.Fields(line))
	}
	return all
}

// changeServices makes, changes and deletes services.
func (s *storm) changeServices(ctx context.Context, rnd *rand.Rand) error {
	services := s.client.CoreV1().Services(open)
	name, app := fmt.Sprintf("come-%d", rnd.IntN(4)), []string{"steady", "scaled", "anchor", "nobody"}[rnd.IntN(4)]
	switch rnd.IntN(5) {
	case 0, 1:
		err := services.Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	case 2:
		_, err := services.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec": {"selector": {"app": %q}, "sessionAffinity": %q}}`, app, []string{"None", "ClientIP"}[rnd.IntN(2)]), metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	var svc corev1.Service
	spec := fmt.Sprintf(`%s, "selector": {"app": %q}`, []string{`"type": "ClusterIP"`, `"type": "NodePort"`, `"clusterIP": "None"`}[rnd.IntN(3)], app)
	if err := json.Unmarshal([]byte(s.service(open, name, spec)), &svc); err != nil {
		return err
	}
	_, err := services.Create(ctx, &svc, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	s.traffic.add("services", 1)
	return err
}

// swing has a service lead to others' pods.
func (s *storm) swing(ctx context.Context, rnd *rand.Rand) error {
	_, err := s.client.CoreV1().Services(open).Patch(ctx, "swing", types.MergePatchType, fmt.Appendf(nil, `{"spec": {"selector": {"app": %q}, "internalTrafficPolicy": %q}}`,
		[]string{"steady", "scaled"}[rnd.IntN(2)], []string{"Cluster", "Local"}[rnd.IntN(2)]), metav1.PatchOptions{})
	return err
}

// changePolicies changes policies around those that stay, and the labels that they are about. None of it is about thieves.
func (s *storm) changePolicies(ctx context.Context, rnd *rand.Rand) error {
	policies := s.client.NetworkingV1().NetworkPolicies(closed)
	name := fmt.Sprintf("come-%d", rnd.IntN(5))
	switch rnd.IntN(6) {
	case 0:
		err := policies.Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	case 1:
		_, err := s.client.CoreV1().Namespaces().Patch(ctx, open, types.MergePatchType, fmt.Appendf(nil, `{"metadata": {"labels": {"team": "%d"}}}`, rnd.IntN(2)), metav1.PatchOptions{})
		return err
	case 2:
		pod := []string{"anchor", "thief", "friend", "client"}[rnd.IntN(4)]
		_, err := s.client.CoreV1().Pods(open).Patch(ctx, pod, types.MergePatchType, fmt.Appendf(nil, `{"metadata": {"labels": {"turn": "%d"}}}`, rnd.IntN(3)), metav1.PatchOptions{})
		return err
	}
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.PodSelector.MatchLabels = []map[string]string{nil, {"app": "vault"}, {"app": "guarded"}}[rnd.IntN(3)]
	from := []networkingv1.NetworkPolicyPeer{
		{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "nobody"}}},
		{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": fmt.Sprint(rnd.IntN(2))}}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "scaled"}}},
		{IPBlock: &networkingv1.IPBlock{CIDR: "203.0.113.0/24"}},
	}[rnd.IntN(3)]
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{from}}}
	if rnd.IntN(2) == 0 { // somebody may come in, but not where somebody listens
		port := intstr.FromInt32(9000 + rnd.Int32N(1000))
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{{Port: &port}}})
	}
	_, err := policies.Create(ctx, p, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var old *networkingv1.NetworkPolicy
		if old, err = policies.Get(ctx, name, metav1.GetOptions{}); err == nil {
			old.Spec = p.Spec
			_, err = policies.Update(ctx, old, metav1.UpdateOptions{})
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
	}
	s.traffic.add("changes of policies", 1)
	return err
}
