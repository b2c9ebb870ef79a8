package registry_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/registry/configmap"
	"monopod.dev/monopod/internal/apiserver/registry/controllerrevision"
	"monopod.dev/monopod/internal/apiserver/registry/daemonset"
	"monopod.dev/monopod/internal/apiserver/registry/deployment"
	"monopod.dev/monopod/internal/apiserver/registry/endpoints"
	"monopod.dev/monopod/internal/apiserver/registry/endpointslice"
	"monopod.dev/monopod/internal/apiserver/registry/event"
	"monopod.dev/monopod/internal/apiserver/registry/ingress"
	"monopod.dev/monopod/internal/apiserver/registry/ingressclass"
	"monopod.dev/monopod/internal/apiserver/registry/ipaddress"
	"monopod.dev/monopod/internal/apiserver/registry/lease"
	"monopod.dev/monopod/internal/apiserver/registry/namespace"
	"monopod.dev/monopod/internal/apiserver/registry/networkpolicy"
	"monopod.dev/monopod/internal/apiserver/registry/node"
	"monopod.dev/monopod/internal/apiserver/registry/pod"
	"monopod.dev/monopod/internal/apiserver/registry/podtemplate"
	"monopod.dev/monopod/internal/apiserver/registry/priorityclass"
	"monopod.dev/monopod/internal/apiserver/registry/rbac"
	"monopod.dev/monopod/internal/apiserver/registry/replicaset"
	"monopod.dev/monopod/internal/apiserver/registry/replicationcontroller"
	"monopod.dev/monopod/internal/apiserver/registry/runtimeclass"
	"monopod.dev/monopod/internal/apiserver/registry/secret"
	"monopod.dev/monopod/internal/apiserver/registry/service"
	"monopod.dev/monopod/internal/apiserver/registry/serviceaccount"
	"monopod.dev/monopod/internal/apiserver/registry/servicecidr"
	"monopod.dev/monopod/internal/apiserver/registry/statefulset"
)

// render writes a table as kubectl does, without its padding.
func render(t *testing.T, convertor rest.TableConvertor, obj runtime.Object, wide bool) string {
	t.Helper()
	table, err := convertor.ConvertToTable(t.Context(), obj, nil)
	if err != nil {
		t.Fatal(err)
	}
	var shown []int
	var lines []string
	var heads []string
	for i, c := range table.ColumnDefinitions {
		if c.Description == "" {
			t.Errorf("column %s has no description", c.Name)
		}
		if c.Priority == 0 || wide {
			shown = append(shown, i)
			heads = append(heads, strings.ToUpper(c.Name))
		}
	}
	lines = append(lines, strings.Join(heads, "|"))
	for _, row := range table.Rows {
		if len(row.Cells) != len(table.ColumnDefinitions) {
			t.Fatalf("%d cells for %d columns", len(row.Cells), len(table.ColumnDefinitions))
		}
		var cells []string
		for _, i := range shown {
			cells = append(cells, fmt.Sprint(row.Cells[i]))
		}
		lines = append(lines, strings.Join(cells, "|"))
	}
	return strings.Join(lines, "\n")
}

func TestTables(t *testing.T) {
	born := metav1.NewTime(time.Now().Add(-3*time.Hour - time.Second))
	meta := metav1.ObjectMeta{Name: "x", CreationTimestamp: born}
	holder, never, port, isController := "me", corev1.PreemptNever, int32(80), true
	owned := meta
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", Controller: &isController}}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", CreationTimestamp: born, Labels: map[string]string{
			"node-role.kubernetes.io/control-plane": "", "node-role.kubernetes.io/agent": "", "kubernetes.io/role": "agent"}},
		Spec: corev1.NodeSpec{Unschedulable: true},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1", OSImage: "Debian", KernelVersion: "6.1", ContainerRuntimeVersion: "monopod://1"},
		},
	}
	old := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e"}, Type: "Warning", Reason: "Failed", Message: " no luck\n", Count: 4,
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p", FieldPath: "spec.containers{c}"},
		Source:         corev1.EventSource{Component: "agent", Host: "n1"},
		FirstTimestamp: metav1.NewTime(time.Now().Add(-2*time.Hour - time.Second)), LastTimestamp: born,
	}
	fresh := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "f"}, Type: "Normal", Reason: "Made", Message: "made",
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "n1"},
		EventTime:      metav1.NewMicroTime(born.Time), ReportingController: "c", ReportingInstance: "c-1",
		Series: &corev1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(time.Now().Add(-time.Hour - time.Second))},
	}
	two, web := int32(2), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	made := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}, {Name: "d", Image: "j"}}, NodeSelector: map[string]string{"disk": "ssd"}}}
	ingressOf := func(hosts ...string) *networkingv1.Ingress {
		i := &networkingv1.Ingress{ObjectMeta: meta}
		for _, host := range hosts {
			i.Spec.Rules = append(i.Spec.Rules, networkingv1.IngressRule{Host: host})
		}
		return i
	}
	served := ingressOf("a.b", "", "c.d", "e.f", "g.h")
	served.Spec.IngressClassName, served.Spec.TLS = &holder, []networkingv1.IngressTLS{{}}
	served.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.2"}, {Hostname: "lb"}, {IP: "192.0.2.1"}, {IP: "192.0.2.2"}}
	group := "example.com"
	for _, tc := range []struct {
		name      string
		convertor rest.TableConvertor
		obj       runtime.Object
		wide      bool
		want      string
	}{
		{"namespace", namespace.Resource().Table(), &corev1.Namespace{ObjectMeta: meta, Status: corev1.NamespaceStatus{Phase: "Active"}}, false, "NAME|STATUS|AGE\nx|Active|3h"},
		{"configmap", configmap.Resource().Table(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": ""}, BinaryData: map[string][]byte{"b": nil}}, false, "NAME|DATA|AGE\nx|2|3h"},
		{"secret", secret.Resource().Table(), &corev1.Secret{ObjectMeta: meta, Type: "Opaque", Data: map[string][]byte{"a": nil}}, false, "NAME|TYPE|DATA|AGE\nx|Opaque|1|3h"},
		{"service account", serviceaccount.Resource().Table(), &corev1.ServiceAccount{ObjectMeta: meta, Secrets: make([]corev1.ObjectReference, 1)}, false, "NAME|AGE\nx|3h"},
		{"lease", lease.Resource().Table(), &coordinationv1.Lease{ObjectMeta: meta, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}, false, "NAME|HOLDER|AGE\nx|me|3h"},
		{"network policy", networkpolicy.Resource().Table(), &networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}, false, "NAME|POD-SELECTOR|AGE\nx|app=web|3h"},
		{"ingress", ingress.Resource().Table(), ingressOf("a.b"), false, "NAME|CLASS|HOSTS|ADDRESS|PORTS|AGE\nx|<none>|a.b||80|3h"},
		{"ingress of all hosts", ingress.Resource().Table(), ingressOf(), false, "NAME|CLASS|HOSTS|ADDRESS|PORTS|AGE\nx|<none>|*||80|3h"},
		{"ingress that is served", ingress.Resource().Table(), served, false,
			"NAME|CLASS|HOSTS|ADDRESS|PORTS|AGE\nx|me|a.b,c.d,e.f + 2 more...|192.0.2.1,192.0.2.2,lb|80, 443|3h"},
		{"ingress class", ingressclass.Resource().Table(), &networkingv1.IngressClass{
			ObjectMeta: metav1.ObjectMeta{Name: "x", CreationTimestamp: born, Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}},
			Spec:       networkingv1.IngressClassSpec{Controller: "a.b/c", Parameters: &networkingv1.IngressClassParametersReference{APIGroup: &group, Kind: "Settings", Name: "s"}},
		}, false, "NAME|CONTROLLER|PARAMETERS|AGE\nx (default)|a.b/c|Settings.example.com/s|3h"},
		{"address", ipaddress.Resource().Table(), &networkingv1.IPAddress{ObjectMeta: meta, Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: "a", Name: "b"}}}, false,
			"NAME|PARENTREF|AGE\nx|services/a/b|3h"},
		{"address of another group", ipaddress.Resource().Table(), &networkingv1.IPAddress{ObjectMeta: meta, Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Group: "e.f", Resource: "Gates", Name: "b"}}}, false,
			"NAME|PARENTREF|AGE\nx|gates.e.f/b|3h"},
		{"range", servicecidr.Resource().Table(), &networkingv1.ServiceCIDR{ObjectMeta: meta, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.1.0.0/24", "fd00::/64"}}}, false,
			"NAME|CIDRS|AGE\nx|10.1.0.0/24,fd00::/64|3h"},
		{"priority class", priorityclass.Resource().Table(), &schedulingv1.PriorityClass{ObjectMeta: meta, Value: 7, GlobalDefault: true, PreemptionPolicy: &never}, false,
			"NAME|VALUE|GLOBAL-DEFAULT|AGE|PREEMPTIONPOLICY\nx|7|true|3h|Never"},
		{"runtime class", runtimeclass.Resource().Table(), &nodev1.RuntimeClass{ObjectMeta: meta, Handler: "runc"}, false, "NAME|HANDLER|AGE\nx|runc|3h"},
		{"revision", controllerrevision.Resource().Table(), &appsv1.ControllerRevision{ObjectMeta: owned, Revision: 3}, false,
			"NAME|CONTROLLER|REVISION|AGE\nx|statefulset.apps/web|3|3h"},
		{"pod template", podtemplate.Resource().Table(), &corev1.PodTemplate{ObjectMeta: meta, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}, {Name: "d", Image: "j"}}}}}, false,
			"NAME|CONTAINERS|IMAGES|POD LABELS\nx|c,d|i,j|a=b"},
		{"deployment", deployment.Resource().Table(), &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &two, Selector: web, Template: made},
			Status: appsv1.DeploymentStatus{ReadyReplicas: 1, UpdatedReplicas: 2, AvailableReplicas: 1}}, true,
			"NAME|READY|UP-TO-DATE|AVAILABLE|AGE|CONTAINERS|IMAGES|SELECTOR\nx|1/2|2|1|3h|c,d|i,j|app=web"},
		{"replica set", replicaset.Resource().Table(), &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &two, Selector: web, Template: made},
			Status: appsv1.ReplicaSetStatus{Replicas: 2, ReadyReplicas: 1}}, true,
			"NAME|DESIRED|CURRENT|READY|AGE|CONTAINERS|IMAGES|SELECTOR\nx|2|2|1|3h|c,d|i,j|app=web"},
		{"replication controllers", replicationcontroller.Resource().Table(), &corev1.ReplicationControllerList{Items: []corev1.ReplicationController{
			{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Replicas: &two, Selector: web.MatchLabels, Template: &made},
				Status: corev1.ReplicationControllerStatus{Replicas: 2, ReadyReplicas: 1}}, {ObjectMeta: meta}}}, true,
			"NAME|DESIRED|CURRENT|READY|AGE|CONTAINERS|IMAGES|SELECTOR\nx|2|2|1|3h|c,d|i,j|app=web\nx|0|0|0|3h|||<none>"},
		{"stateful set", statefulset.Resource().Table(), &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &two, Selector: web, Template: made},
			Status: appsv1.StatefulSetStatus{Replicas: 2, ReadyReplicas: 1}}, true, "NAME|READY|AGE|CONTAINERS|IMAGES\nx|1/2|3h|c,d|i,j"},
		{"daemon sets", daemonset.Resource().Table(), &appsv1.DaemonSetList{Items: []appsv1.DaemonSet{{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: web, Template: made},
			Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 5, CurrentNumberScheduled: 4, NumberReady: 3, UpdatedNumberScheduled: 2, NumberAvailable: 1}}, {ObjectMeta: meta}}}, true,
			"NAME|DESIRED|CURRENT|READY|UP-TO-DATE|AVAILABLE|NODE SELECTOR|AGE|CONTAINERS|IMAGES|SELECTOR\nx|5|4|3|2|1|disk=ssd|3h|c,d|i,j|app=web\nx|0|0|0|0|0|<none>|3h|||<none>"},
		{"endpoints", endpoints.Resource().Table(), &corev1.Endpoints{ObjectMeta: meta, Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: "10.0.0.1"}, {IP: "fd00::1"}}, NotReadyAddresses: []corev1.EndpointAddress{{IP: "10.0.0.9"}},
			Ports: []corev1.EndpointPort{{Port: 80}, {Port: 443}}}}}, false, "NAME|ENDPOINTS|AGE\nx|10.0.0.1:80,10.0.0.1:443,[fd00::1]:80 + 1 more...|3h"},
		{"endpoints without any", endpoints.Resource().Table(), &corev1.Endpoints{ObjectMeta: meta}, false, "NAME|ENDPOINTS|AGE\nx|<none>|3h"},
		{"endpoint slice", endpointslice.Resource().Table(), &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: "IPv4",
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}, {Addresses: []string{"10.0.0.2"}}}, Ports: []discoveryv1.EndpointPort{{Port: &port}, {}}}, false,
			"NAME|ADDRESSTYPE|PORTS|ENDPOINTS|AGE\nx|IPv4|80,*|10.0.0.1,10.0.0.2|3h"},
		{"endpoint slice without any", endpointslice.Resource().Table(), &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: "IPv4"}, false,
			"NAME|ADDRESSTYPE|PORTS|ENDPOINTS|AGE\nx|IPv4|<unset>|<unset>|3h"},
		{"services", service.Resource().Table(), &corev1.ServiceList{Items: []corev1.Service{
			{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: "ClusterIP", ClusterIP: "10.43.0.9", ClusterIPs: []string{"10.43.0.9", "fd00::9"}, Selector: map[string]string{"a": "b"},
				Ports: []corev1.ServicePort{{Port: 80, Protocol: "TCP"}, {Port: 53, NodePort: 30053, Protocol: "UDP"}}}},
			{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: "ClusterIP", ClusterIP: "None", ClusterIPs: []string{"None"}, ExternalIPs: []string{"192.0.2.1"}}},
			{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: "ExternalName", ExternalName: "example.com"}},
			{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: "LoadBalancer", ClusterIP: "10.43.0.8"}},
			{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: "LoadBalancer"}, Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{
				Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.7"}, {Hostname: "lb.example.com"}}}}},
		}}, true, "NAME|TYPE|CLUSTER-IP|EXTERNAL-IP|PORT(S)|AGE|SELECTOR\nx|ClusterIP|10.43.0.9|<none>|80/TCP,53:30053/UDP|3h|a=b\nx|ClusterIP|None|192.0.2.1|<none>|3h|<none>\n" +
			"x|ExternalName|<none>|example.com|<none>|3h|<none>\nx|LoadBalancer|10.43.0.8|<pending>|<none>|3h|<none>\nx|LoadBalancer|<none>|192.0.2.7,lb.example.com|<none>|3h|<none>"},
		{"pod without anything", pod.Table(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, true,
			"NAME|READY|STATUS|RESTARTS|AGE|IP|NODE|NOMINATED NODE|READINESS GATES\np|0/0||0|<unknown>|<none>|<none>|<none>|<none>"},
		{"list of pods", pod.Table(), &corev1.PodList{Items: []corev1.Pod{{ObjectMeta: meta}, {ObjectMeta: meta}}}, false,
			"NAME|READY|STATUS|RESTARTS|AGE\nx|0/0||0|3h\nx|0/0||0|3h"},
		{"node", node.Resource().Table(), n, true,
			"NAME|STATUS|ROLES|AGE|VERSION|INTERNAL-IP|EXTERNAL-IP|OS-IMAGE|KERNEL-VERSION|CONTAINER-RUNTIME\n" +
				"n1|Ready,SchedulingDisabled|agent,control-plane|3h|v1|10.0.0.1|<none>|Debian|6.1|monopod://1"},
		{"node that nobody heard of", node.Resource().Table(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, false,
			"NAME|STATUS|ROLES|AGE|VERSION\nn2|Unknown|<none>|<unknown>|"},
		{"events", event.Resource().Table(), &corev1.EventList{Items: []corev1.Event{*old, *fresh}}, false,
			"LAST SEEN|TYPE|REASON|OBJECT|MESSAGE\n3h|Warning|Failed|pod/p|no luck\n60m|Normal|Made|node/n1|made"},
		{"events, wide", event.Resource().Table(), &corev1.EventList{Items: []corev1.Event{*old, *fresh}}, true,
			"LAST SEEN|TYPE|REASON|OBJECT|SUBOBJECT|SOURCE|MESSAGE|FIRST SEEN|COUNT|NAME\n" +
				"3h|Warning|Failed|pod/p|spec.containers{c}|agent, n1|no luck|120m|4|e\n60m|Normal|Made|node/n1||c, c-1|made|3h|3|f"},
		{"role", rbac.Roles(rbac.Guard{}).Table(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r", CreationTimestamp: metav1.Unix(1, 0)}}, false,
			"NAME|CREATED AT\nr|1970-01-01T00:00:01Z"},
		{"role binding", rbac.RoleBindings(rbac.Guard{}).Table(), &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "r"}}, false,
			"NAME|ROLE|AGE\nx|Role/r|3h"},
		{"cluster role binding, wide", rbac.ClusterRoleBindings(rbac.Guard{}).Table(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"},
			Subjects: []rbacv1.Subject{{Kind: "User", Name: "a"}, {Kind: "Group", Name: "g"}, {Kind: "User", Name: "b"}, {Kind: "ServiceAccount", Namespace: "n", Name: "s"}},
		}, true, "NAME|ROLE|AGE|USERS|GROUPS|SERVICEACCOUNTS\nx|ClusterRole/r|3h|a, b|g|n/s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := render(t, tc.convertor, tc.obj, tc.wide); got != tc.want {
				t.Errorf("table:\n%s\nwant:\n%s", got, tc.want)
			}
		})
	}
}

func TestTableKeepsTheListsMetadata(t *testing.T) {
	left := int64(7)
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "12", Continue: "more", RemainingItemCount: &left}}
	table, err := pod.Table().ConvertToTable(t.Context(), list, &metav1.TableOptions{NoHeaders: true})
	if err != nil {
		t.Fatal(err)
	}
	if table.ResourceVersion != "12" || table.Continue != "more" || *table.RemainingItemCount != 7 {
		t.Errorf("list metadata %+v", table.ListMeta)
	}
	if table.ColumnDefinitions != nil {
		t.Error("headers, although the client has them already")
	}
}

func TestTableOfSomethingElseIsNotAcceptable(t *testing.T) {
	_, err := pod.Table().ConvertToTable(t.Context(), &corev1.Node{}, nil)
	if apierrors.ReasonForError(err) != metav1.StatusReasonNotAcceptable {
		t.Errorf("error %v, want reason NotAcceptable", err)
	}
}
