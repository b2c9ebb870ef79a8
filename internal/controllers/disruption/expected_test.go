package disruption

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/controllers/scales"
)

// served are the scales of an API server, by kind and name; a name's UID is the name.
type served map[string]int32

func (s served) Get(_ context.Context, of schema.GroupKind, _, name string) (*autoscalingv1.Scale, schema.GroupResource, error) {
	switch {
	case of.Kind == "Job":
		return nil, schema.GroupResource{}, fmt.Errorf("%w: jobs.batch does not implement the scale subresource", scales.ErrNotScalable)
	case of.Kind == "Ill":
		return nil, schema.GroupResource{}, errors.New("the API server does not answer")
	}
	n, has := s[of.String()+" "+name]
	if !has {
		return nil, schema.GroupResource{}, apierrors.NewNotFound(schema.GroupResource{Group: of.Group, Resource: of.Kind}, name)
	}
	return &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{UID: types.UID(name)}, Spec: autoscalingv1.ScaleSpec{Replicas: n}}, schema.GroupResource{}, nil
}

// of has an object belong to another one: "apps/v1 ReplicaSet web". The owner's UID is its name.
func of(object metav1.Object, owner string) {
	if owner == "" {
		return
	}
	f := strings.Fields(owner)
	yes := true
	object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: f[0], Kind: f[1], Name: f[2], UID: types.UID(f[2]), Controller: &yes}})
}

func TestExpected(t *testing.T) {
	object := func(name, owner string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name)}
		of(&m, owner)
		return m
	}
	n := func(n int32) *int32 { return &n }
	index := func(objects ...runtime.Object) cache.Indexer {
		i := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		for _, o := range objects {
			if err := i.Add(o); err != nil {
				t.Fatal(err)
			}
		}
		return i
	}
	o := owners{
		deployments: appslisters.NewDeploymentLister(index(&appsv1.Deployment{ObjectMeta: object("web", ""), Spec: appsv1.DeploymentSpec{Replicas: n(4)}})),
		sets: appslisters.NewReplicaSetLister(index(
			&appsv1.ReplicaSet{ObjectMeta: object("web-1", "apps/v1 Deployment web"), Spec: appsv1.ReplicaSetSpec{Replicas: n(1)}},
			&appsv1.ReplicaSet{ObjectMeta: object("web-2", "apps/v1 Deployment web"), Spec: appsv1.ReplicaSetSpec{Replicas: n(3)}},
			&appsv1.ReplicaSet{ObjectMeta: object("left", "apps/v1 Deployment gone"), Spec: appsv1.ReplicaSetSpec{Replicas: n(2)}},
			&appsv1.ReplicaSet{ObjectMeta: object("canary", "argoproj.io/v1 Rollout r"), Spec: appsv1.ReplicaSetSpec{Replicas: n(6)}},
			&appsv1.ReplicaSet{ObjectMeta: object("alone", ""), Spec: appsv1.ReplicaSetSpec{Replicas: n(5)}},
		)),
		stateful:    appslisters.NewStatefulSetLister(index(&appsv1.StatefulSet{ObjectMeta: object("db", ""), Spec: appsv1.StatefulSetSpec{Replicas: n(7)}})),
		controllers: corelisters.NewReplicationControllerLister(index(&corev1.ReplicationController{ObjectMeta: object("rc", ""), Spec: corev1.ReplicationControllerSpec{Replicas: n(9)}})),
		scales:      served{"Game.example.org chess": 20, "ReplicaSet.apps new": 8, "StatefulSet.other db": 30},
	}
	for _, c := range []struct {
		name   string
		owners []string
		want   string
	}{
		{"no pods", nil, "0"},
		{"a replica set", []string{"apps/v1 ReplicaSet alone", "apps/v1 ReplicaSet alone"}, "5"},
		{"a deployment's replica sets are the deployment", []string{"apps/v1 ReplicaSet web-1", "apps/v1 ReplicaSet web-2"}, "4"},
		{"a deployment that is gone", []string{"apps/v1 ReplicaSet left"}, "2"},
		{"a replica set of something else", []string{"apps/v1 ReplicaSet canary"}, "6"},
		{"a stateful set", []string{"apps/v1 StatefulSet db"}, "7"},
		{"a replication controller", []string{"v1 ReplicationController rc"}, "9"},
		{"the same kind of another group", []string{"other/v1 StatefulSet db"}, "30"},
		{"any kind with a scale", []string{"example.org/v1 Game chess"}, "20"},
		{"not in a cache yet", []string{"apps/v1 ReplicaSet new"}, "8"},
		{"several", []string{"apps/v1 ReplicaSet web-1", "apps/v1 StatefulSet db", "example.org/v1 Game chess"}, "31"},
		{"some without an owner", []string{"apps/v1 ReplicaSet alone", ""}, "5 unmanaged 1"},
		{"an owner that is gone", []string{"apps/v1 ReplicaSet gone"}, `found no controllers for pod "0", and so it stays`},
		{"an owner without a scale", []string{"apps/v1 ReplicaSet alone", "batch/v1 Job j"}, "not scalable: jobs.batch does not implement the scale subresource, and so it stays"},
		{"an API server that fails", []string{"example.org/v1 Ill i"}, "scale of Ill n/i: the API server does not answer"},
	} {
		var all []*corev1.Pod
		for i, owner := range c.owners {
			pod := some(fmt.Sprint(i))[0]
			of(pod, owner)
			all = append(all, pod)
		}
		sum, unmanaged, err := o.expected(t.Context(), all, func(types.UID) {})
		got := fmt.Sprint(sum)
		if len(unmanaged) > 0 {
			got += " unmanaged " + strings.Join(unmanaged, " ")
		}
		if err != nil {
			got = err.Error()
			if errors.Is(err, errNoScale) {
				got += ", and so it stays"
			}
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestExpectedHuge(t *testing.T) {
	huge := int32(math.MaxInt32)
	sets := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	var all []*corev1.Pod
	for _, name := range []string{"a", "b", "c"} {
		if err := sets.Add(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name)}, Spec: appsv1.ReplicaSetSpec{Replicas: &huge}}); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "pod-" + name}}
		of(pod, "apps/v1 ReplicaSet "+name)
		all = append(all, pod)
	}
	n, _, err := owners{sets: appslisters.NewReplicaSetLister(sets)}.expected(t.Context(), all, func(types.UID) {})
	if n != huge || err != nil {
		t.Errorf("three sets of %d pods want %d, %v", huge, n, err)
	}
}
