package apiserver_test

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// What people do with services, by the real kubectl.
func TestKubectlServices(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	for name, test := range map[string]func(*testing.T, kubectl){
		"expose": kubectlExpose, "types": kubectlServiceTypes, "changes of the type": kubectlServiceTypeChanges, "ports of one number": kubectlPorts, "refusals": kubectlServiceRefusals,
	} {
		t.Run(name, func(t *testing.T) { test(t, i.kubectl(t)) })
	}
}

const webPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":8080}]}]}}`

func kubectlExpose(t *testing.T, k kubectl) {
	k.run("create", "namespace", "expose")
	k.feed(webPod, "-n", "expose", "create", "-f", "-")
	k.run("-n", "expose", "expose", "pod", "web", "--port=80", "--target-port=8080")
	table := columns(k.run("-n", "expose", "get", "svc", "-o", "wide"))
	if got := strings.Join(table[0], " "); got != "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE SELECTOR" {
		t.Errorf("columns %q", got)
	}
	row := table[1]
	if row[0] != "web" || row[1] != "ClusterIP" || row[3] != "<none>" || row[4] != "80/TCP" || row[6] != "app=web" {
		t.Errorf("the service is %q", row)
	}
	if ip, err := netip.ParseAddr(row[2]); err != nil || !netip.MustParsePrefix("10.43.0.0/16").Contains(ip) {
		t.Errorf("its address is %s", row[2])
	}
	d := k.run("-n", "expose", "describe", "svc", "web")
	for _, want := range []string{"IP Families:", "IPv4", "SingleStack", "TargetPort:", "8080/TCP", "Session Affinity:", "None"} {
		if !strings.Contains(d, want) {
			t.Errorf("describe has no %q:\n%s", want, d)
		}
	}
	if got := k.run("-n", "expose", "get", "all", "-o", "name"); got != "pod/web\nservice/web\n" {
		t.Errorf("get all: %q", got)
	}
	// A manifest that does not know what the service was given keeps it.
	manifest := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"selector":{"app":"other"},"ports":[{"port":80}]}}`
	k.feed(manifest, "-n", "expose", "replace", "-f", "-")
	k.feed(manifest, "-n", "expose", "apply", "--server-side", "--force-conflicts", "-f", "-")
	if got := k.run("-n", "expose", "get", "svc", "web", "-o", "jsonpath={.spec.clusterIP} {.spec.clusterIPs[0]} {.spec.selector.app}"); got != row[2]+" "+row[2]+" other" {
		t.Errorf("after a replacement: %s, want the address %s", got, row[2])
	}
	k.run("delete", "namespace", "expose", "--wait=false")
}

func kubectlServiceTypes(t *testing.T, k kubectl) {
	k.run("create", "namespace", "types")
	k.run("-n", "types", "create", "service", "clusterip", "plain", "--tcp=80:8080")
	k.run("-n", "types", "create", "service", "clusterip", "headless", "--clusterip=None", "--tcp=80")
	k.run("-n", "types", "create", "service", "nodeport", "node", "--tcp=80", "--node-port=30123")
	k.run("-n", "types", "create", "service", "loadbalancer", "balanced", "--tcp=80")
	k.run("-n", "types", "create", "service", "externalname", "outside", "--external-name=example.com")
	k.feed(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"dns"},"spec":{"type":"NodePort","ports":[{"name":"t","port":53},{"name":"u","port":53,"protocol":"UDP"}]}}`,
		"-n", "types", "create", "-f", "-")
	k.feed(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"bare"},"spec":{"clusterIP":"None"}}`, "-n", "types", "create", "-f", "-")
	field := func(name, path string) string {
		return k.run("-n", "types", "get", "svc", name, "-o", "jsonpath={"+path+"}")
	}
	for of, want := range map[string]string{
		"plain .spec.ports[0].targetPort": "8080", "plain .spec.internalTrafficPolicy": "Cluster", "plain .spec.ipFamilyPolicy": "SingleStack",
		"headless .spec.clusterIPs[0]": "None", "node .spec.ports[0].nodePort": "30123", "node .spec.externalTrafficPolicy": "Cluster",
		"balanced .spec.allocateLoadBalancerNodePorts": "true", "outside .spec.clusterIPs": "", "outside .spec.ipFamilies": "",
		"bare .spec.ipFamilies": `["IPv4","IPv6"]`, "bare .spec.ipFamilyPolicy": "RequireDualStack",
	} {
		name, path, _ := strings.Cut(of, " ")
		if got := field(name, path); got != want {
			t.Errorf("%s is %q, want %q", of, got, want)
		}
	}
	if a, b := field("dns", ".spec.ports[0].nodePort"), field("dns", ".spec.ports[1].nodePort"); a != b || a == "" {
		t.Errorf("the node ports of one number are %s and %s", a, b)
	}
	k.run("-n", "types", "patch", "svc", "balanced", "--subresource=status", "-p", `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.7"}]}}}`)
	k.run("-n", "types", "patch", "svc", "balanced", "--subresource=status", "-p", `{"status":{"conditions":[{"type":"Half","status":"True"}]}}`)
	if row := columns(k.run("-n", "types", "get", "svc", "balanced", "--no-headers"))[0]; row[3] != "192.0.2.7" {
		t.Errorf("the load balancer is %q", row)
	}
	if mode := field("balanced", ".status.loadBalancer.ingress[0].ipMode"); mode != "VIP" {
		t.Errorf("the mode of its address is %q", mode)
	}
	k.fail("may only be used when `spec.type` is 'LoadBalancer'", "", "-n", "types", "patch", "svc", "plain", "--subresource=status", "-p", `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.7"}]}}}`)
	if got := k.run("-n", "types", "get", "svc", "--field-selector=spec.type=ExternalName", "-o", "name"); got != "service/outside\n" {
		t.Errorf("services by type: %q", got)
	}
	k.run("delete", "namespace", "types", "--wait=false")
}

// A service that becomes another gives back what it has no more.
func kubectlServiceTypeChanges(t *testing.T, k kubectl) {
	k.run("create", "namespace", "changes")
	in := func(args ...string) []string { return append([]string{"-n", "changes"}, args...) }
	k.run(in("create", "service", "nodeport", "web", "--tcp=80", "--node-port=30200")...)
	ip := k.run(in("get", "svc", "web", "-o", "jsonpath={.spec.clusterIP}")...)
	k.run(in("patch", "svc", "web", "-p", `{"spec":{"type":"ClusterIP"}}`)...)
	if got := k.run(in("get", "svc", "web", "-o", "jsonpath={.spec.clusterIP} {.spec.ports[0].nodePort}{.spec.externalTrafficPolicy}")...); got != ip+" " {
		t.Errorf("as ClusterIP: %q", got)
	}
	k.run(in("create", "service", "nodeport", "second", "--tcp=80", "--node-port=30200")...)
	k.fail("provided port is already allocated", "", in("patch", "svc", "web", "-p", `{"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":30200}]}}`)...)
	k.run(in("patch", "svc", "web", "-p", `{"spec":{"type":"ExternalName","externalName":"example.com"}}`)...)
	k.feed(fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"heir"},"spec":{"clusterIP":%q,"ports":[{"port":80}]}}`, ip), in("create", "-f", "-")...)
	k.run(in("patch", "svc", "web", "-p", `{"spec":{"type":"LoadBalancer","externalTrafficPolicy":"Local"}}`)...)
	got := strings.Fields(k.run(in("get", "svc", "web", "-o", "jsonpath={.spec.clusterIP} {.spec.ports[0].nodePort} {.spec.healthCheckNodePort}")...))
	if len(got) != 3 || got[0] == ip || got[1] == got[2] {
		t.Errorf("as LoadBalancer: %q", got)
	}
	k.run(in("delete", "svc", "heir")...)
	k.feed(fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"heir2"},"spec":{"clusterIP":%q,"ports":[{"port":80}]}}`, ip), in("create", "-f", "-")...)
	// What is only tried takes nothing.
	for range 2 {
		k.feed(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"try"},"spec":{"clusterIP":"10.43.0.77","ports":[{"port":80}]}}`, in("create", "--dry-run=server", "-f", "-")...)
	}
	k.run("delete", "namespace", "changes", "--wait=false")
}

// kubectl apply of a number by two protocols: each port is the manifest's, whichever comes, changes or goes.
func kubectlPorts(t *testing.T, k kubectl) {
	k.run("create", "namespace", "ports")
	apply := func(ports string) string {
		k.feed(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"dns"},"spec":{"type":"NodePort","ports":[`+ports+`]}}`, "-n", "ports", "apply", "-f", "-")
		return k.run("-n", "ports", "get", "svc", "dns", "-o", "jsonpath={range .spec.ports[*]}{.name}:{.port}/{.protocol}>{.targetPort} {end}")
	}
	numbers := func() string {
		return k.run("-n", "ports", "get", "svc", "dns", "-o", "jsonpath={.spec.ports[*].nodePort}")
	}
	const tcp, udp = `{"name":"t","port":53}`, `{"name":"u","port":53,"protocol":"UDP"}`
	var given string
	for _, c := range []struct{ ports, want string }{
		{tcp, "t:53/TCP>53 "},
		{tcp + "," + udp, "t:53/TCP>53 u:53/UDP>53 "},
		{tcp + `,{"name":"other","port":53,"protocol":"UDP","targetPort":5353}`, "t:53/TCP>53 other:53/UDP>5353 "},
		{udp + "," + tcp, "u:53/UDP>53 t:53/TCP>53 "},
		{udp, "u:53/UDP>53 "},
		{udp + `,{"name":"m","port":9153}`, "u:53/UDP>53 m:9153/TCP>9153 "},
	} {
		if got := apply(c.ports); got != c.want {
			t.Errorf("ports %s of a manifest are %q, want %q", c.ports, got, c.want)
		}
		now, _, _ := strings.Cut(numbers(), " ")
		if given == "" {
			given = now
		}
		if now != given {
			t.Errorf("ports %s have the node port %s, had %s", c.ports, now, given)
		}
	}
	template := func(container string) string {
		k.feed(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"dns"},"spec":{"replicas":0,"selector":{"matchLabels":{"a":"a"}},"template":{"metadata":{"labels":{"a":"a"}},
			"spec":{"containers":[{"name":"c","image":"i",`+container+`}]}}}}`, "-n", "ports", "apply", "-f", "-")
		return k.run("-n", "ports", "get", "deploy", "dns", "-o",
			"jsonpath={range .spec.template.spec.containers[0]}{range .ports[*]}{.containerPort}/{.protocol} {end}{range .env[*]}{.name}={.value} {end}{end}")
	}
	for _, c := range []struct{ container, want string }{
		{`"ports":[{"containerPort":53}],"env":[{"name":"A","value":"1"},{"name":"A","value":"2"}]`, "53/TCP A=1 A=2 "},
		{`"ports":[{"containerPort":53},{"containerPort":53,"protocol":"UDP"}],"env":[{"name":"A","value":"2"}]`, "53/TCP 53/UDP A=2 "},
		{`"ports":[{"containerPort":53,"protocol":"UDP"}]`, "53/UDP "},
	} {
		if got := template(c.container); got != c.want {
			t.Errorf("a template with %s has %q, want %q", c.container, got, c.want)
		}
	}
	k.run("delete", "namespace", "ports", "--wait=false")
}

func kubectlServiceRefusals(t *testing.T, k kubectl) {
	service := func(spec string) string {
		return `{"apiVersion":"v1","kind":"Service","metadata":{"name":"bad"},"spec":` + spec + `}`
	}
	for want, spec := range map[string]string{
		"failed to allocate IP 10.43.0.1: provided IP is already allocated":                            `{"clusterIP":"10.43.0.1","ports":[{"port":80}]}`,
		"(192.0.2.1) is not in the valid range. The range of valid IPs is 10.43.0.0/16":                `{"clusterIP":"192.0.2.1","ports":[{"port":80}]}`,
		"provided port is not in the valid range. The range of valid ports is 30000-32767":             `{"type":"NodePort","ports":[{"port":80,"nodePort":80}]}`,
		"spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster":                  `{"ipFamilies":["IPv6"],"ports":[{"port":80}]}`,
		"spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for": `{"ipFamilyPolicy":"RequireDualStack","ports":[{"port":80}]}`,
		"spec.ports: Required value": `{}`,
	} {
		k.fail(want, service(spec), "create", "-f", "-")
	}
}

// TestOwnService: the service kubernetes leads to the API, and comes back.
func TestOwnService(t *testing.T) {
	cfg := newConfig(t)
	cfg.AdvertiseAddress = netip.MustParseAddr("192.0.2.10")
	i := start(t, cfg)
	defer i.end(t)
	kube, ctx := i.admin(t), t.Context()
	s, err := kube.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Spec.ClusterIP != "10.43.0.1" || s.Spec.Ports[0].Port != 443 || s.Spec.Ports[0].TargetPort.IntValue() != i.Port() || s.Labels["component"] != "apiserver" {
		t.Errorf("the service is %+v", s.Spec)
	}
	e, err := kube.CoreV1().Endpoints("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if a := e.Subsets[0]; a.Addresses[0].IP != "192.0.2.10" || int(a.Ports[0].Port) != i.Port() || a.Ports[0].Name != "https" {
		t.Errorf("its endpoints are %+v", a)
	}
	if _, err := kube.DiscoveryV1().EndpointSlices("default").Get(ctx, "kubernetes", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	w, err := kube.CoreV1().Services("default").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=kubernetes", ResourceVersion: s.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := kube.CoreV1().Services("default").Delete(ctx, "kubernetes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	back := eventOf(t, w, watch.Added).(*corev1.Service)
	if back.Spec.ClusterIP != "10.43.0.1" || back.UID == s.UID {
		t.Errorf("it came back as %+v", back)
	}
	back.Spec.Ports[0].TargetPort.IntVal = 1
	if _, err := kube.CoreV1().Services("default").Update(ctx, back, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventOf(t, w, watch.Modified) // ours
	if again := eventOf(t, w, watch.Modified).(*corev1.Service); again.Spec.Ports[0].TargetPort.IntValue() != i.Port() {
		t.Errorf("its port stays %v", again.Spec.Ports[0].TargetPort)
	}
}

func eventOf(t *testing.T, w watch.Interface, kind watch.EventType) any {
	t.Helper()
	for e := range w.ResultChan() {
		if e.Type == kind {
			return e.Object
		}
	}
	t.Fatalf("the watch ended without an event %s", kind)
	return nil
}

// TestServiceAddresses: many clients at once, and again after kill -9: no two services have one address or one node port.
func TestServiceAddresses(t *testing.T) {
	cfg := newConfig(t)
	cfg.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.43.0.0/24"), netip.MustParsePrefix("fd00:43::/112")}
	i := start(t, cfg)
	create(t, i.admin(t), "before", 40)
	i.end(t)

	// In a process that is killed while it makes services. Its range is the default one, in which the others' addresses are.
	p := startProcess(t, filepath.Dir(cfg.DataDir))
	k := i.kubectl(t)
	var made sync.WaitGroup
	made.Go(func() {
		for n := range 200 {
			if _, _, ok := k.try(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"during-`+fmt.Sprint(n)+`"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`, "create", "-f", "-"); !ok {
				return
			}
			if n == 5 {
				_ = p.Process.Kill()
			}
		}
	})
	_ = p.Wait()
	made.Wait()

	i = start(t, cfg)
	defer i.end(t)
	kube := i.admin(t)
	create(t, kube, "after", 40)
	list, err := kube.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	note := func(what, who string) {
		if other := seen[what]; other != "" {
			t.Errorf("%s is %s's and %s's", what, other, who)
		}
		seen[what] = who
	}
	dual := 0
	for _, s := range list.Items {
		for _, ip := range s.Spec.ClusterIPs {
			note(ip, s.Name)
		}
		for _, port := range s.Spec.Ports {
			if port.NodePort > 0 {
				note(fmt.Sprint("port ", port.NodePort), s.Name)
			}
		}
		if len(s.Spec.ClusterIPs) == 2 {
			dual++
		}
	}
	if len(list.Items) < 85 || dual < 80 {
		t.Errorf("%d services, %d of two addresses", len(list.Items), dual)
	}
	if err := kube.CoreV1().RESTClient().Delete().Namespace("default").Resource("services").Do(t.Context()).Error(); err != nil {
		t.Error(err)
	}
	// All that was given out is free again.
	create(t, kube, "last", 240)
}

// create makes services at once, each with two addresses and a node port.
func create(t *testing.T, kube kubernetes.Interface, name string, count int) {
	t.Helper()
	dual := corev1.IPFamilyPolicyPreferDualStack
	errs := make(chan error, count)
	for n := range count {
		go func() {
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(name, "-", n)}, Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeNodePort, IPFamilyPolicy: &dual, Ports: []corev1.ServicePort{{Port: 80}}}}
			_, err := kube.CoreV1().Services("default").Create(t.Context(), s, metav1.CreateOptions{})
			if again, e := kube.CoreV1().Services("default").Create(t.Context(), s, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(e) {
				err = errors.Join(err, e, fmt.Errorf("it was made twice: %v", again))
			}
			errs <- err
		}()
	}
	for range count {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}
