package statefulset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod.dev/monopod/internal/controllers/revisions"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
}

// set is one of so many pods of the image "new", which was "old" before.
func set(replicas int32, change ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "n", UID: "s", Generation: 1},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}, Template: template("new"), ServiceName: "svc",
			PodManagementPolicy: appsv1.OrderedReadyPodManagement, RevisionHistoryLimit: new(int32),
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32)},
			},
		},
		Status: appsv1.StatefulSetStatus{CurrentRevision: named("old")},
	}
	*s.Spec.RevisionHistoryLimit = 10
	for _, c := range change {
		c(s)
	}
	return s
}

func parallel(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }
func onDelete(s *appsv1.StatefulSet) {
	s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
}
func partition(n int32) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.Partition = &n }
}
func unavailable(most string) func(*appsv1.StatefulSet) {
	n := intstr.Parse(most)
	return func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = &n }
}
func start(n int32) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: n} }
}
func minReady(n int32) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = n }
}
func limit(n int32) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.RevisionHistoryLimit = &n }
}
func leaving(s *appsv1.StatefulSet) { s.DeletionTimestamp = &metav1.Time{Time: now} }

// made is the revision of an image.
func made(image string, number int64) *appsv1.ControllerRevision {
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "n", UID: "s"}, Spec: appsv1.StatefulSetSpec{Template: template(image)}}
	plan, err := revisions.Decide(owner(s), nil)
	if err != nil {
		panic(err)
	}
	plan.Current.Revision = number
	return plan.Current
}

func named(image string) string { return made(image, 1).Name }

// members are a set's in short: "0:old:ready" is the pod with the ordinal 0, of the revision old, which is ready for an hour. Others than ready are pending,
// running, crashing, fresh (ready for ten seconds), failed, succeeded, ending; lost is ready and has no label of its name.
func members(of string) (all []*corev1.Pod) {
	for word := range strings.FieldsSeq(of) {
		parts := strings.Split(word, ":")
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "s-" + parts[0], Labels: map[string]string{"app": "a"}}}
		p.Labels[appsv1.ControllerRevisionHashLabelKey], p.Labels[appsv1.StatefulSetPodNameLabel] = named(parts[1]), p.Name
		p.Status.Phase = corev1.PodRunning
		ready := func(ago time.Duration) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-ago))}}
		}
		switch parts[2] {
		case "pending":
			p.Status.Phase = corev1.PodPending
		case "crashing":
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
		case "ready":
			ready(time.Hour)
		case "fresh":
			ready(10 * time.Second)
		case "lost":
			ready(time.Hour)
			delete(p.Labels, appsv1.StatefulSetPodNameLabel)
		case "failed":
			p.Status.Phase = corev1.PodFailed
		case "succeeded":
			p.Status.Phase = corev1.PodSucceeded
		case "ending":
			ready(time.Hour)
			p.DeletionTimestamp = &metav1.Time{Time: now}
		}
		all = append(all, p)
	}
	return all
}

func image(revision string) string {
	for _, image := range []string{"old", "new", "older"} {
		if named(image) == revision {
			return image
		}
	}
	return revision
}

// short is what a plan does to pods.
func short(p Plan) string {
	var all []string
	for _, pod := range p.Identify {
		all = append(all, "identify "+pod.Labels[appsv1.StatefulSetPodNameLabel])
	}
	for _, pod := range p.Replace {
		all = append(all, "replace "+pod.Name)
	}
	for _, pod := range p.Create {
		all = append(all, fmt.Sprintf("create %s %s", pod.Name, image(revision(pod))))
	}
	for _, pod := range p.Delete {
		all = append(all, "delete "+pod.Name)
	}
	for _, r := range p.Forget {
		all = append(all, "forget "+image(r.Name))
	}
	if p.Again > 0 {
		all = append(all, fmt.Sprintf("again in %v", p.Again))
	}
	return strings.Join(all, ", ")
}

// decide is a plan with two revisions, old and new.
func decide(t *testing.T, s *appsv1.StatefulSet, pods []*corev1.Pod) Plan {
	t.Helper()
	plan, err := Decide(State{Set: s, Pods: pods, Revisions: []*appsv1.ControllerRevision{made("older", 1), made("old", 2), made("new", 3)}, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name string
		set  *appsv1.StatefulSet
		pods string
		want string
	}{
		{"the first one", set(3), "", "create s-0 new"},
		{"not before the first one runs", set(3), "0:new:pending", ""},
		{"not before the first one is ready", set(3), "0:new:running", ""},
		{"not before the first one is available", set(3, minReady(60)), "0:new:fresh", "again in 50s"},
		{"the second one", set(3), "0:new:ready", "create s-1 new"},
		{"a gap is filled before a later one is looked at", set(3), "0:new:ready 2:new:pending", "create s-1 new"},
		{"as it should be", set(2), "0:new:ready 1:new:ready", ""},
		{"all at once", set(3, parallel), "1:new:pending", "create s-0 new, create s-2 new"},
		{"ordinals begin later", set(2, start(5)), "", "create s-5 new"},
		{"ordinals have moved", set(2, start(1)), "0:new:ready 1:new:ready", "create s-2 new"},
		{"ordinals have moved, and all are there", set(2, start(1)), "0:new:ready 1:new:ready 2:new:ready", "delete s-0"},

		{"who has failed makes room", set(2), "0:new:failed 1:new:ready", "replace s-0"},
		{"who has succeeded makes room", set(2), "0:new:ready 1:new:succeeded", "replace s-1"},
		{"who has failed and goes is waited for", set(3), "0:new:ready 1:new:ending", ""},
		{"all that have failed make room at once", set(3, parallel), "0:new:failed 1:new:failed", "replace s-0, replace s-1, create s-2 new"},

		{"the highest goes first", set(1), "0:new:ready 1:new:ready 2:new:ready", "delete s-2"},
		{"one after another", set(1), "0:new:ready 1:new:ready 2:new:ending", ""},
		{"nobody goes while one before it is not ready", set(1), "0:new:ready 1:new:running 2:new:ready", "delete s-2"},
		{"who is not ready waits for a lower one that is not", set(1), "0:new:ready 1:new:running 2:new:running", ""},
		{"the lowest that is not ready may go", set(1), "0:new:ready 1:new:running", "delete s-1"},
		{"nobody goes while a member is missing", set(2), "0:new:ready 2:new:ready", "create s-1 new"},
		{"all that are too many at once", set(1, parallel), "0:new:pending 1:new:ready 2:new:running 3:new:ending", "delete s-2, delete s-1"},
		{"none is wanted", set(0), "0:new:ready", "delete s-0"},

		{"an update begins with the highest", set(3), "0:old:ready 1:old:ready 2:old:ready", "delete s-2"},
		{"a pod is made anew by the update", set(3), "0:old:ready 1:old:ready", "create s-2 new"},
		{"an update waits for who is not ready", set(3), "0:old:ready 1:old:ready 2:new:running", ""},
		{"an update goes on", set(3), "0:old:ready 1:old:ready 2:new:ready", "delete s-1"},
		{"an update waits for who is not available", set(3, minReady(60)), "0:old:ready 1:old:ready 2:new:fresh", "again in 50s"},
		{"an update stays above the partition", set(3, partition(2)), "0:old:ready 1:old:ready 2:new:ready", ""},
		{"who is below the partition stays what it was", set(3, partition(2)), "1:old:ready 2:new:ready", "create s-0 old"},
		{"the partition counts from the first ordinal", set(3, start(5), partition(2)), "5:old:ready 7:new:ready", "create s-6 old"},
		{"a partition above all", set(2, partition(9)), "0:old:ready", "create s-1 old"},
		{"nothing is updated unless deleted", set(2, onDelete), "0:old:ready 1:old:ready", ""},
		{"who was deleted is made by the new template", set(2, onDelete), "0:old:ready", "create s-1 new"},
		{"one at a time, in parallel too", set(3, parallel), "0:old:ready 1:old:ready 2:old:ready", "delete s-2"},
		{"in parallel an update waits, too", set(3, parallel), "0:old:ready 1:old:ready 2:new:running", ""},
		{"in parallel one that is broken is updated", set(3, parallel), "0:old:running 1:old:running 2:old:running", "delete s-2"},
		{"in parallel who is available waits for one below that is not", set(3, parallel), "0:old:running 1:old:ready 2:old:ready", "delete s-0"},
		{"a new one that is broken stops the update", set(3, parallel), "0:new:running 1:old:ready 2:old:ready", ""},
		{"several at a time", set(4, parallel, unavailable("2")), "0:old:ready 1:old:ready 2:old:ready 3:old:ready", "delete s-3, delete s-2"},
		{"several at a time, of which one is not back", set(4, parallel, unavailable("2")), "0:old:ready 1:old:ready 2:new:ready 3:new:pending", "delete s-1"},
		{"as many as may be missing", set(4, parallel, unavailable("2")), "0:old:ready 1:old:ready 2:new:ending 3:new:pending", ""},
		{"a share, rounded down", set(4, unavailable("70%")), "0:old:ready 1:old:ready 2:old:ready 3:old:ready", "delete s-3, delete s-2"},
		{"a small share is one", set(4, unavailable("10%")), "0:old:ready 1:old:ready 2:old:ready 3:old:ready", "delete s-3"},
		{"in order one that runs, and is broken, is not", set(3), "0:old:running 1:old:ready 2:old:ready", ""},
		{"a new one that is broken is waited for", set(3), "0:old:ready 1:old:ready 2:new:crashing", ""},
		{"one of a template that was given up is not waited for", set(3), "0:old:ready 1:old:ready 2:older:pending", "delete s-2"},
		{"nor one that runs", set(3), "0:old:ready 1:old:ready 2:older:running", "delete s-2"},
		{"but one that is soon available", set(3, minReady(60)), "0:old:ready 1:old:ready 2:older:fresh", "again in 50s"},
		{"nor the first one that never started", set(3), "0:old:pending", "delete s-0"},
		{"nor the first one that crashes", set(3), "0:old:crashing", "delete s-0"},
		{"one that goes, and never started, is waited for", set(3), "0:old:ready 1:older:ending", ""},
		{"below the partition it is", set(3, partition(2)), "0:old:ready 1:older:pending 2:new:ready", ""},
		{"where nothing is updated it is", set(2, onDelete), "0:old:crashing", ""},
		{"scaling comes before updating", set(1), "0:old:ready 1:old:ready", "delete s-1"},

		{"a lost label comes back", set(2), "0:new:lost 1:new:ready", "identify s-0"},
		{"a lost label comes back, and work goes on", set(3), "0:new:lost 1:new:ready", "identify s-0, create s-2 new"},
		{"pods of other names are none", set(1), "00:new:ready x:new:ready 0:new:ready 4294967296:new:ready", ""},
		{"history has no room", set(1, limit(0)), "0:new:ready", "forget older"},
		{"revisions of pods stay", set(1, limit(0), onDelete), "0:older:ready", ""},
		{"who goes does nothing", set(3, leaving), "0:new:failed 1:old:ready", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := short(decide(t, c.set, members(c.pods))); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		name string
		set  *appsv1.StatefulSet
		pods string
		want string
	}{
		{"none yet", set(2), "", "0 pods, 0 ready, 0 available, 0 current of old, 0 updated of new"},
		{"in the midst", set(3, partition(2), minReady(60)), "0:old:ready 1:old:fresh 2:new:running",
			"3 pods, 2 ready, 1 available, 2 current of old, 1 updated of new"},
		{"one goes for the update", set(2), "0:old:ready 1:old:ready", "2 pods, 2 ready, 2 available, 1 current of old, 0 updated of new"},
		{"one of neither goes for the update", set(2), "0:older:ready 1:older:ready", "2 pods, 2 ready, 2 available, 0 current of old, 0 updated of new"},
		{"one ends", set(2), "0:new:ready 1:new:ending", "2 pods, 2 ready, 2 available, 0 current of old, 1 updated of new"},
		{"complete", set(2), "0:new:ready 1:new:ready", "2 pods, 2 ready, 2 available, 2 current of new, 2 updated of new"},
		{"complete, though one is too many", set(1), "0:new:ready 1:new:ready", "2 pods, 2 ready, 2 available, 0 current of old, 2 updated of new"},
		{"never complete by itself", set(2, onDelete), "0:new:ready 1:new:ready", "2 pods, 2 ready, 2 available, 0 current of old, 2 updated of new"},
		{"who has ended is there", set(2), "0:new:failed", "1 pods, 0 ready, 0 available, 0 current of old, 1 updated of new"},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := decide(t, c.set, members(c.pods)).Status.Status
			got := fmt.Sprintf("%d pods, %d ready, %d available, %d current of %s, %d updated of %s", to.Replicas, to.ReadyReplicas, to.AvailableReplicas,
				to.CurrentReplicas, image(to.CurrentRevision), to.UpdatedReplicas, image(to.UpdateRevision))
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if to.ObservedGeneration != 1 || to.CollisionCount == nil {
				t.Errorf("generation %d, collisions %v", to.ObservedGeneration, to.CollisionCount)
			}
		})
	}
	told := decide(t, set(1), members("0:new:ready")).Status
	if again := decide(t, told, members("0:new:ready")).Status; again != told {
		t.Errorf("what has not changed is told again: %+v", again.Status)
	}
}

func TestIdentity(t *testing.T) {
	pod := newPod(set(1), &corev1.PodTemplateSpec{}, "s-1234", 7)
	if pod.Name != "s-7" || pod.Spec.Hostname != "s-7" || pod.Spec.Subdomain != "svc" || pod.Namespace != "n" || !metav1.IsControlledBy(pod, set(1)) {
		t.Errorf("%+v", pod)
	}
	for label, want := range map[string]string{
		"statefulset.kubernetes.io/pod-name": "s-7", "apps.kubernetes.io/pod-index": "7", "controller-revision-hash": "s-1234",
	} {
		if pod.Labels[label] != want {
			t.Errorf("%s is %q, want %q", label, pod.Labels[label], want)
		}
	}
	of := set(1)
	newPod(of, &of.Spec.Template, "x", 0).Labels["app"] = "other"
	if of.Spec.Template.Labels["app"] != "a" {
		t.Error("a pod shares the labels of the set's template")
	}
}
