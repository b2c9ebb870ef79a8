package apiserver_test

import (
	"context"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// TestAgentsRights: what the agent of a node may, and may not, with a real API server's requests.
func TestAgentsRights(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	admin, agent, ctx := i.admin(t), i.client(t, i.NodeConfig("n1")), t.Context()
	for _, name := range []string{"mine", "others", "nobodys"} {
		if _, err := admin.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		account(t, admin, name)
	}
	own, err := agent.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{
		"kubernetes.io/hostname": "n1", "kubernetes.io/os": "linux", "example.com/rack": "7"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bareNode(t, admin, "n2")
	on := func(node, name string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.NodeName, s.ServiceAccountName = node, name
			s.Volumes = []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}}
		}
	}
	mine, others := barePod(t, admin, "mine", on("n1", "mine")), barePod(t, admin, "others", on("n2", "others"))

	// The authorizer knows of a pod what its watch has told, which may be a moment after the pod was made.
	readable := func(t *testing.T, secret string) {
		t.Helper()
		eventually(t, "secret "+secret+" is read", func() bool {
			err := second(agent.CoreV1().Secrets("default").Get(ctx, secret, metav1.GetOptions{}))
			if err != nil && !apierrors.IsForbidden(err) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	t.Run("it reads what its pods refer to", func(t *testing.T) {
		byName := metav1.ListOptions{FieldSelector: "metadata.name=mine"}
		readable(t, "mine")
		if list, err := agent.CoreV1().Secrets("default").List(ctx, byName); err != nil || len(list.Items) != 1 {
			t.Errorf("%v, %v", list, err)
		}
		w, err := agent.CoreV1().Secrets("default").Watch(ctx, byName)
		if err != nil {
			t.Fatal(err)
		}
		w.Stop()
		eventually(t, "the authority in its pod's volume is read", func() bool {
			err := second(agent.CoreV1().ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{}))
			if apierrors.IsForbidden(err) {
				t.Fatal(err)
			}
			return err == nil
		})
		for name, err := range map[string]error{
			"another node's": second(agent.CoreV1().Secrets("default").Get(ctx, "others", metav1.GetOptions{})),
			"nobody's":       second(agent.CoreV1().Secrets("default").Get(ctx, "nobodys", metav1.GetOptions{})),
			"all":            second(agent.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})),
			"a namespace's":  second(agent.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})),
			"one anywhere":   second(agent.CoreV1().Secrets("").List(ctx, byName)),
			"all pods":       second(agent.CoreV1().Pods("").List(ctx, metav1.ListOptions{})),
			"other pods":     second(agent.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n2"})),
			"another pod":    second(agent.CoreV1().Pods("default").Get(ctx, "others", metav1.GetOptions{})),
			"another node":   second(agent.CoreV1().Nodes().Get(ctx, "n2", metav1.GetOptions{})),
		} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v, want Forbidden", name, err)
			}
		}
	})
	t.Run("a pod's references end with it", func(t *testing.T) {
		zero := int64(0)
		barePod(t, admin, "brief", on("n1", "nobodys"))
		readable(t, "nobodys")
		if err := agent.CoreV1().Pods("default").Delete(ctx, "brief", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the secret is not read any more", func() bool {
			return apierrors.IsForbidden(second(agent.CoreV1().Secrets("default").Get(ctx, "nobodys", metav1.GetOptions{})))
		})
	})
	t.Run("tokens", func(t *testing.T) {
		ask := func(account string, change func(*authenticationv1.TokenRequestSpec)) error {
			return second(agent.CoreV1().ServiceAccounts("default").CreateToken(ctx, account, request(change), metav1.CreateOptions{}))
		}
		if err := ask("mine", boundTo("Pod", "mine", mine.UID)); err != nil {
			t.Error(err)
		}
		for name, tc := range map[string]struct {
			account string
			change  func(*authenticationv1.TokenRequestSpec)
			want    string
		}{
			"unbound":              {"mine", nil, "node requested token not bound to a pod"},
			"bound to its node":    {"mine", boundTo("Node", "n1", own.UID), "node requested token not bound to a pod"},
			"without a UID":        {"mine", boundTo("Pod", "mine", ""), "without a uid"},
			"for another pod":      {"mine", boundTo("Pod", "others", others.UID), "scheduled on a different node"},
			"for another UID":      {"mine", boundTo("Pod", "mine", "x"), "does not match the UID in record"},
			"of another's account": {"others", boundTo("Pod", "others", others.UID), "no relationship found"},
			"for another audience": {"mine", func(r *authenticationv1.TokenRequestSpec) {
				boundTo("Pod", "mine", mine.UID)(r)
				r.Audiences = []string{"vault"}
			}, `not authorized to request tokens for audience "vault"`},
		} {
			if err := ask(tc.account, tc.change); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %q", name, err, tc.want)
			}
		}
	})
	t.Run("certificates of pods", func(t *testing.T) { agentAsks(t, admin, agent, own) })
	t.Run("it writes what is its own", func(t *testing.T) { agentWrites(t, ctx, agent, own) })
}

// second is the error of a call.
func second[T any](_ T, err error) error { return err }

func agentWrites(t *testing.T, ctx context.Context, agent kubernetes.Interface, own *corev1.Node) {
	yes := true
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: own.UID, Controller: &yes}
	mirror := func(change func(p *corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "static-n1", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}, OwnerReferences: []metav1.OwnerReference{owner}},
			Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		if change != nil {
			change(p)
		}
		return p
	}
	node := func(patch string) error {
		return second(agent.CoreV1().Nodes().Patch(ctx, "n1", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}))
	}
	pod := func(change func(p *corev1.Pod)) error {
		return second(agent.CoreV1().Pods("default").Create(ctx, mirror(change), metav1.CreateOptions{}))
	}
	status := func(name, patch string) error {
		return second(agent.CoreV1().Pods("default").Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"))
	}
	lease := func(ns, name string) error {
		return second(agent.CoordinationV1().Leases(ns).Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))
	}
	drivers := func(name string) error {
		return second(agent.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))
	}
	for name, err := range map[string]error{
		"a label":          node(`{"metadata":{"labels":{"node.kubernetes.io/instance-type":"m","example.com/rack":"8"}}}`),
		"its status":       second(agent.CoreV1().Nodes().PatchStatus(ctx, "n1", []byte(`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}]}}`))),
		"its pod's status": status("mine", `{"status":{"phase":"Running"}}`),
		"a mirror":         pod(nil),
		"its lease":        lease("kube-node-lease", "n1"),
		"its drivers":      drivers("n1"),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"a label of administrators": {node(`{"metadata":{"labels":{"node-restriction.kubernetes.io/tier":"gold"}}}`), "not allowed to set the following labels: node-restriction.kubernetes.io/tier"},
		"a role":                    {node(`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`), "node-role.kubernetes.io/control-plane"},
		"a taint":                   {node(`{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`), "not allowed to modify taints"},
		"an owner":                  {node(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"y"}]}}`), "not allowed to modify ownerReferences"},
		"its end":                   {agent.CoreV1().Nodes().Delete(ctx, "n1", metav1.DeleteOptions{}), "cannot delete"},
		"another node": {second(agent.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3"}}, metav1.CreateOptions{})),
			`node "n1" is not allowed to modify node "n3"`},
		"a node of no name": {second(agent.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "n"}}, metav1.CreateOptions{})),
			`node "n1" is not allowed to modify node`},
		"another node's status":     {second(agent.CoreV1().Nodes().PatchStatus(ctx, "n2", []byte(`{"status":{"phase":"Running"}}`))), "may not do that"},
		"another pod's status":      {status("others", `{"status":{"phase":"Running"}}`), "with spec.nodeName set to itself"},
		"its pod's labels":          {status("mine", `{"metadata":{"labels":{"a":"b"}}}`), "cannot update labels through pod status"},
		"another pod's end":         {agent.CoreV1().Pods("default").Delete(ctx, "others", metav1.DeleteOptions{}), "can only delete pods with spec.nodeName set to itself"},
		"an ordinary pod":           {pod(func(p *corev1.Pod) { p.Annotations = nil }), "can only create mirror pods"},
		"a mirror elsewhere":        {pod(func(p *corev1.Pod) { p.Spec.NodeName = "n2" }), "spec.nodeName set to itself"},
		"a mirror of nobody":        {pod(func(p *corev1.Pod) { p.OwnerReferences = nil }), "a single owner reference set to itself"},
		"a mirror of another":       {pod(func(p *corev1.Pod) { p.OwnerReferences[0].Name = "n2" }), "an owner reference set to itself"},
		"a mirror of an older node": {pod(func(p *corev1.Pod) { p.OwnerReferences[0].UID = "x" }), "UID mismatch"},
		"a mirror with a secret": {pod(func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "nobodys"}} }),
			"a"},
		"another node's lease": {lease("kube-node-lease", "n2"), "with the same name as the requesting node"},
		"another's drivers":    {drivers("n2"), "with the same name as the requesting node"},
		"a lease elsewhere":    {lease("default", "n1"), "can only access leases"},
		"a lease of no name": {second(agent.CoordinationV1().Leases("kube-node-lease").Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{GenerateName: "n1"}}, metav1.CreateOptions{})),
			"with the same name as the requesting node"},
		"a secret":  {second(agent.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})), ""},
		"a binding": {agent.CoreV1().Pods("default").Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}, metav1.CreateOptions{}), ""},
	} {
		if !apierrors.IsForbidden(tc.err) || !strings.Contains(tc.err.Error(), tc.want) {
			t.Errorf("%s: %v, want Forbidden, %q", name, tc.err, tc.want)
		}
	}
}
