package binder

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// stock is a storage of a test.
type stock struct {
	claims  []*corev1.PersistentVolumeClaim
	volumes []*corev1.PersistentVolume
	classes []*storagev1.StorageClass
	inUse   []string
}

func oneOf[T any](all []T, is func(T) bool) (one T) {
	if i := slices.IndexFunc(all, is); i >= 0 {
		one = all[i]
	}
	return one
}

func (s *stock) Claim(name types.NamespacedName) *corev1.PersistentVolumeClaim {
	return oneOf(s.claims, func(c *corev1.PersistentVolumeClaim) bool {
		return c.Namespace == name.Namespace && c.Name == name.Name
	})
}

func (s *stock) Volume(name string) *corev1.PersistentVolume {
	return oneOf(s.volumes, func(v *corev1.PersistentVolume) bool { return v.Name == name })
}

func (s *stock) Class(name string) *storagev1.StorageClass {
	return oneOf(s.classes, func(c *storagev1.StorageClass) bool { return c.Name == name })
}

func (s *stock) offers(class string, _ *corev1.PersistentVolumeClaim) []*corev1.PersistentVolume {
	return slices.DeleteFunc(slices.Clone(s.volumes), func(v *corev1.PersistentVolume) bool { return v.Spec.StorageClassName != class })
}

func (s *stock) used(claim types.NamespacedName) bool { return slices.Contains(s.inUse, claim.Name) }

// The changes of claims, volumes and classes of tests.
type (
	ofAClaim  = func(*corev1.PersistentVolumeClaim)
	ofAVolume = func(*corev1.PersistentVolume)
	ofAClass  = func(*storagev1.StorageClass)
)

// claimed is a claim of 2 Gi of the class "late", its UID that of its name.
func claimed(name string, changes ...ofAClaim) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("late"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: list("storage", "2Gi")},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	for _, change := range changes {
		change(c)
	}
	return c
}

func inClass(name string) ofAClaim {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &name }
}

func ofSize(size string) ofAClaim {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = list("storage", size) }
}

func boundTo(volume string) ofAClaim {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Status.Phase = volume, corev1.ClaimBound
		c.Annotations["pv.kubernetes.io/bind-completed"] = "yes"
	}
}

func onNode(name string) ofAClaim {
	return func(c *corev1.PersistentVolumeClaim) { c.Annotations["volume.kubernetes.io/selected-node"] = name }
}

func forOnePod(c *corev1.PersistentVolumeClaim) {
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
}

// stored is a free volume of 5 Gi of the class "late".
func stored(name string, changes ...ofAVolume) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: "late", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteOncePod}, Capacity: list("storage", "5Gi"),
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
	}
	for _, change := range changes {
		change(v)
	}
	return v
}

func holding(size string) ofAVolume {
	return func(v *corev1.PersistentVolume) { v.Spec.Capacity = list("storage", size) }
}

func thereOn(node string) ofAVolume {
	return func(v *corev1.PersistentVolume) {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}
	}
}

func heldBy(claim string) ofAVolume {
	return func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: claim, UID: types.UID("uid-" + claim)}
	}
}

func labelled(key, value string) ofAVolume {
	return func(v *corev1.PersistentVolume) {
		if v.Labels == nil {
			v.Labels = map[string]string{}
		}
		v.Labels[key] = value
	}
}

func classed(name, provisioner string, mode storagev1.VolumeBindingMode, changes ...ofAClass) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode}
	for _, change := range changes {
		change(c)
	}
	return c
}

func only(key string, values ...string) ofAClass {
	return func(c *storagev1.StorageClass) {
		c.AllowedTopologies = append(c.AllowedTopologies, corev1.TopologySelectorTerm{
			MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: key, Values: values}}})
	}
}

// having is a pod with claims; one whose name begins with "+" is brought along by it.
func having(names ...string) *corev1.Pod {
	return podWith(func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		for _, name := range names {
			v := corev1.Volume{Name: strings.TrimPrefix(name, "+")}
			if v.Name != name {
				v.Ephemeral = &corev1.EphemeralVolumeSource{}
			} else {
				v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}
			}
			p.Spec.Volumes = append(p.Spec.Volumes, v)
		}
	})
}

func ownedBy(uid types.UID) ofAClaim {
	return func(c *corev1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: uid, Controller: ptr.To(true)}}
	}
}

// decided says what is decided about a pod: its node and its plan, or why it waits.
func decided(pod *corev1.Pod, in cluster) string {
	node, lacks := choose(pod, in, nil)
	if node == "" {
		return explain(pod, in.places, lacks)
	}
	text := node
	p, ok := in.plan(pod, node)
	if !ok {
		return "another look says otherwise"
	}
	for _, g := range p.Gives {
		text += fmt.Sprintf(" %s=%s", g.Claim.Name, g.Volume.Name)
	}
	for _, c := range p.Makes {
		text += fmt.Sprintf(" %s+", c.Name)
	}
	return text
}

func TestClaims(t *testing.T) {
	const (
		none = "0/2 nodes are available: "
		zone = corev1.LabelTopologyZone
	)
	lost := func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }
	ending := func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }
	free := func(volumes ...*corev1.PersistentVolume) []*corev1.PersistentVolume { return volumes }
	for _, c := range []struct {
		name    string
		pod     *corev1.Pod
		claims  []*corev1.PersistentVolumeClaim
		volumes []*corev1.PersistentVolume
		inUse   []string
		want    string
	}{
		{"no claims", having(), nil, nil, nil, "a"},
		{"no claim of the name", having("c"), nil, nil, nil, none + `persistentvolumeclaim "c" not found.`},
		{"in another namespace", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", func(c *corev1.PersistentVolumeClaim) { c.Namespace = "other" })}, nil, nil,
			none + `persistentvolumeclaim "c" not found.`},
		{"one that is not there is told before others", having("+e", "c"), nil, nil, nil, none + `persistentvolumeclaim "c" not found.`},
		{"its own, not yet there", having("+e"), nil, nil, nil, none + `waiting for ephemeral volume controller to create the persistentvolumeclaim "p-e".`},
		{"its own, another's", having("+e"), []*corev1.PersistentVolumeClaim{claimed("p-e", ownedBy("q"))}, nil, nil,
			none + "PVC default/p-e was not created for pod default/p (pod is not owner)."},
		{"its own", having("+e"), []*corev1.PersistentVolumeClaim{claimed("p-e", ownedBy("p"))}, nil, nil, "a p-e+"},
		{"being deleted", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", ending)}, nil, nil, none + `persistentvolumeclaim "c" is being deleted.`},
		{"lost", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", boundTo("v"), lost)}, nil, nil,
			none + `persistentvolumeclaim "c" bound to non-existent persistentvolume "v".`},
		{"the volume is not there", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", boundTo("v"))}, nil, nil, none + `persistentvolume "v" not found.`},
		{"its own volume is not there", having("+e"), []*corev1.PersistentVolumeClaim{claimed("p-e", ownedBy("p"), boundTo("v"))}, nil, nil,
			none + "2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)."},

		{"of no class", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", inClass(""))}, nil, nil, none + "pod has unbound immediate PersistentVolumeClaims."},
		{"of a class that is not there", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", inClass("x"))}, nil, nil,
			none + "pod has unbound immediate PersistentVolumeClaims."},
		{"of a class that binds at once", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", inClass("now"))}, free(stored("v")), nil,
			none + "pod has unbound immediate PersistentVolumeClaims."},
		{"names its volume", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "v" })}, free(stored("v")), nil,
			none + "pod has unbound immediate PersistentVolumeClaims."},
		{"unbound before not there", having("b", "c"), []*corev1.PersistentVolumeClaim{claimed("b", boundTo("v")), claimed("c", inClass("now"))}, nil, nil,
			none + "pod has unbound immediate PersistentVolumeClaims."},

		{"bound, anywhere", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", boundTo("v"))}, free(stored("v", heldBy("c"))), nil, "a"},
		{"bound, here", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", boundTo("v"))}, free(stored("v", heldBy("c"), thereOn("b"))), nil, "b"},
		{"bound, elsewhere", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", boundTo("v"))}, free(stored("v", heldBy("c"), thereOn("z"))), nil,
			none + "2 node(s) didn't match PersistentVolume's node affinity."},
		{"bound, here and there", having("c", "d"), []*corev1.PersistentVolumeClaim{claimed("c", boundTo("v")), claimed("d", boundTo("w"))},
			free(stored("v", heldBy("c"), thereOn("a")), stored("w", heldBy("d"), thereOn("b"))), nil, none + "2 node(s) didn't match PersistentVolume's node affinity."},
		{"its own, bound", having("+e"), []*corev1.PersistentVolumeClaim{claimed("p-e", ownedBy("p"), boundTo("v"))}, free(stored("v", thereOn("b"))), nil, "b"},
		{"the annotation of one that is bound", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", boundTo("v"), onNode("a"))}, free(stored("v", thereOn("b"))), nil, "b"},

		{"for one pod", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", boundTo("v"), forOnePod)}, free(stored("v")), nil, "a"},
		{"for one pod, another's", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", boundTo("v"), forOnePod)}, free(stored("v")), []string{"c"},
			none + "2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod."},
		{"for all, another's", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", boundTo("v"))}, free(stored("v")), []string{"c"}, "a"},
		{"one for one pod, the other one used", having("c", "d"), []*corev1.PersistentVolumeClaim{claimed("c", boundTo("v"), forOnePod), claimed("d", boundTo("v"))},
			free(stored("v")), []string{"d"}, "a"},

		{"zone", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", boundTo("v"))}, free(stored("v", labelled(zone, "zb"))), nil, "b"},
		{"zones", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", boundTo("v"))}, free(stored("v", labelled(zone, "zx__ zb"))), nil, "b"},
		{"an old name of zones", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", boundTo("v"))}, free(stored("v", labelled(corev1.LabelFailureDomainBetaZone, "zb"))), nil, "b"},
		{"what cannot be a zone", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", boundTo("v"))}, free(stored("v", labelled(zone, "zb__"))), nil, "a"},
		{"another zone", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", boundTo("v"))}, free(stored("v", labelled(zone, "zx"))), nil,
			none + "2 node(s) had no available volume zone."},
		{"a region, and the nodes say none", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", boundTo("v"))}, free(stored("v", labelled(corev1.LabelTopologyRegion, "r"))), nil,
			none + "2 node(s) had no available volume zone."},

		{"made", having("c"), []*corev1.PersistentVolumeClaim{claimed("c")}, nil, nil, "a c+"},
		{"made for a node already", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", onNode("b"))}, free(stored("v", thereOn("a"))), nil, "b c+"},
		{"made for two nodes", having("c", "d"), []*corev1.PersistentVolumeClaim{claimed("c", onNode("a")), claimed("d", onNode("b"))}, nil, nil,
			none + "2 node(s) didn't find available persistent volumes to bind."},
		{"made for a node that is gone", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", onNode("z"))}, nil, nil, "a c+"},
		{"made where the other one is", having("c", "d"), []*corev1.PersistentVolumeClaim{claimed("c"), claimed("d", boundTo("v"))}, free(stored("v", heldBy("d"), thereOn("b"))), nil, "b c+"},
		{"nobody makes it", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", inClass("static"))}, nil, nil,
			none + "2 node(s) didn't find available persistent volumes to bind."},
		{"made in a zone", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", inClass("inZone"))}, nil, nil, "b c+"},
		{"made nowhere", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", inClass("nowhere"))}, nil, nil,
			none + "2 node(s) didn't find available persistent volumes to bind."},

		{"refused", having("c", "d"), []*corev1.PersistentVolumeClaim{claimed("c", refusedOn("a")), claimed("d")}, nil, nil,
			none + `persistentvolumeclaim "c" gets no volume: no room.`},
		{"refused where no node is any more", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", refusedOn("z"))}, nil, nil, "a c+"},
		{"refused before there was a node", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", refusedOn(""))}, nil, nil, "a c+"},
		{"refused, of a class that binds at once", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", inClass("now"), refusedOn(""))}, nil, nil,
			none + `persistentvolumeclaim "c" gets no volume: no room.`},
		{"refused, and bound to another one", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", refusedOn("a"), boundTo("v"))}, free(stored("v", heldBy("c"))), nil, "a"},
		{"a claim in two volumes of the pod", having("c", "c"), []*corev1.PersistentVolumeClaim{claimed("c", inClass("static"))},
			free(stored("v", ofClass("static")), stored("w", ofClass("static"))), nil, "a c=v"},

		{"there", having("c"), []*corev1.PersistentVolumeClaim{claimed("c")}, free(stored("v")), nil, "a c=v"},
		{"there on one", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", inClass("static"))}, free(stored("v", thereOn("b"), ofClass("static"))), nil, "b c=v"},
		{"the smallest one", having("c"), []*corev1.PersistentVolumeClaim{claimed("c")}, free(stored("v"), stored("w", holding("3Gi")), stored("x", holding("4Gi"))), nil, "a c=w"},
		{"too small", having("c"), []*corev1.PersistentVolumeClaim{claimed("c")}, free(stored("v", holding("1Gi"))), nil, "a c+"},
		{"of another class", having("c"), []*corev1.PersistentVolumeClaim{claimed("c")}, free(stored("v", ofClass("static"))), nil, "a c+"},
		{"of another mode", having("c"), []*corev1.PersistentVolumeClaim{claimed("c")},
			free(stored("v", func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) })), nil, "a c+"},
		{"another's", having("c"), []*corev1.PersistentVolumeClaim{claimed("c")}, free(stored("v", heldBy("d"))), nil, "a c+"},
		{"kept for it", having("c"), []*corev1.PersistentVolumeClaim{claimed("c")}, free(stored("w", holding("2Gi")), stored("v", heldBy("c"))), nil, "a c=v"},
		{"kept for it, elsewhere", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", inClass("static"))},
			free(stored("w", ofClass("static")), stored("v", heldBy("c"), thereOn("z"), ofClass("static"))), nil,
			none + "2 node(s) didn't find available persistent volumes to bind."},
		{"not available", having("c"), []*corev1.PersistentVolumeClaim{claimed("c")},
			free(stored("v", func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeReleased })), nil, "a c+"},
		{"no volume for two", having("c", "d"), []*corev1.PersistentVolumeClaim{claimed("c", inClass("static")), claimed("d", inClass("static"))}, free(stored("v", ofClass("static"))), nil,
			none + "2 node(s) didn't find available persistent volumes to bind."},
		{"the smallest claim first", having("c", "d"), []*corev1.PersistentVolumeClaim{claimed("c", ofSize("4Gi")), claimed("d", ofSize("3Gi"))},
			free(stored("v"), stored("w", holding("3Gi"))), nil, "a d=w c=v"},
		{"one is there, the other one is made", having("c", "d"), []*corev1.PersistentVolumeClaim{claimed("c"), claimed("d", ofSize("1Gi"))}, free(stored("v", thereOn("a"))), nil, "a d=v c+"},
		{"both of them are there on one only", having("c", "d"), []*corev1.PersistentVolumeClaim{claimed("c", inClass("static")), claimed("d", inClass("static"))},
			free(stored("v", ofClass("static"), thereOn("a")), stored("w", ofClass("static"), thereOn("b")), stored("x", ofClass("static"), thereOn("b"))), nil, "b c=w d=x"},
		{"by its labels", having("c"), []*corev1.PersistentVolumeClaim{claimed("c", selecting("disk", "ssd"))}, free(stored("v", holding("2Gi")), stored("w", labelled("disk", "ssd"))), nil, "a c=w"},
		{"its reasons together", having("c", "d"), []*corev1.PersistentVolumeClaim{claimed("c", inClass("static")), claimed("d", boundTo("v"))}, free(stored("v", thereOn("b"))), nil,
			none + "1 node(s) didn't match PersistentVolume's node affinity, 2 node(s) didn't find available persistent volumes to bind."},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := cluster{storage: &stock{claims: c.claims, volumes: c.volumes, inUse: c.inUse, classes: []*storagev1.StorageClass{
				classed("late", "example.com/p", storagev1.VolumeBindingWaitForFirstConsumer),
				classed("now", "example.com/p", storagev1.VolumeBindingImmediate),
				classed("static", "kubernetes.io/no-provisioner", storagev1.VolumeBindingWaitForFirstConsumer),
				classed("inZone", "example.com/p", storagev1.VolumeBindingWaitForFirstConsumer, only("zone", "x"), only(zone, "y", "zb")),
				classed("nowhere", "example.com/p", storagev1.VolumeBindingWaitForFirstConsumer, only(corev1.LabelTopologyRegion, "r"),
					func(c *storagev1.StorageClass) {
						c.AllowedTopologies = append(c.AllowedTopologies, corev1.TopologySelectorTerm{}) // which means none
					}),
			}}}
			for _, name := range []string{"a", "b"} {
				in.places = append(in.places, place{node: nodeWith(func(n *corev1.Node) {
					n.Name, n.Labels = name, map[string]string{corev1.LabelHostname: name, zone: "z" + name}
				})})
			}
			if got := decided(c.pod, in); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
			for i := range in.places { // nodes that are in no zone may have any volume
				delete(in.places[i].node.Labels, zone)
			}
			if got := decided(c.pod, in); strings.Contains(got, "volume zone") {
				t.Errorf("without zones: %s", got)
			}
		})
	}
}

func ofClass(name string) ofAVolume {
	return func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = name }
}

func selecting(key, value string) ofAClaim {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
}

// A pod that waits for its claim keeps nobody from a device.
func TestWhoWaitsForAClaimIsNotInLine(t *testing.T) {
	older := having("c")
	older.Name = "older"
	older.Spec.Containers[0].Resources.Requests = list(widget, "2")
	if node, lacks := choose(named("p", widget, "1"), cluster{places: []place{at("n")}, storage: &stock{}}, []*corev1.Pod{older}); node != "n" {
		t.Errorf("it has no node: %v", lacks)
	}
}
