package service

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/yaml"

	"monopod.dev/monopod/internal/apiserver/reach"
)

// behindServices are endpoint slices and pods. A road leads to every address that a pod has.
type behindServices struct {
	slices []discoveryv1.EndpointSlice
	pods   map[string]string // the address of each
	broken error
	asked  []string
}

func (b *behindServices) EndpointSlices(_ context.Context, _, _ string) ([]discoveryv1.EndpointSlice, error) {
	return b.slices, nil
}

func (b *behindServices) Pod(_ context.Context, namespace, name string, fresh bool) (*corev1.Pod, error) {
	ip, ok := b.pods[name]
	switch {
	case b.broken != nil:
		return nil, b.broken
	case !ok || !fresh:
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: corev1.PodStatus{PodIP: ip}}, nil
}

func (b *behindServices) ProxyToPodAt(_ context.Context, pod *corev1.Pod, at string, to reach.Backend, _ rest.Responder) (http.Handler, error) {
	if pod.Status.PodIP != at {
		return nil, apierrors.NewBadRequest("address not allowed: " + at)
	}
	b.asked = append(b.asked, to.Scheme+"|"+at+"|"+to.Port+"|"+to.Path)
	return http.NotFoundHandler(), nil
}

// oneService is a storage.
type oneService struct{ *corev1.Service }

func (s oneService) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if name != s.Name {
		return nil, apierrors.NewNotFound(corev1.Resource("services"), name)
	}
	return s.Service, nil
}

const (
	plainPort  = "ports: [{port: 80, protocol: TCP}]"
	namedPorts = "ports: [{name: dns, port: 80, protocol: UDP}, {name: web, port: 80, protocol: TCP}, {name: admin, port: 81, protocol: TCP}]"
	// Pods a and b.
	two = `{ports: [{name: "", port: 8080, protocol: TCP}], endpoints: [` +
		`{addresses: [10.61.0.1], targetRef: {kind: Pod, namespace: ns, name: a}}, {addresses: [10.61.0.2], conditions: {ready: true}, targetRef: {kind: Pod, namespace: ns, name: b}}]}`
	unready = `{ports: [{name: "", port: 8080, protocol: TCP}], endpoints: [{addresses: [10.61.0.1], conditions: {ready: false}, targetRef: {kind: Pod, namespace: ns, name: a}}]}`
	named   = `{ports: [{name: dns, port: 53, protocol: UDP}, {name: web, port: 8080, protocol: TCP}, {name: admin, protocol: TCP}], endpoints: [` +
		`{addresses: [10.61.0.1], targetRef: {kind: Pod, namespace: ns, name: a}}]}`
	otherNumber = `{ports: [{name: admin, port: 9000, protocol: TCP}], endpoints: [{addresses: [10.61.0.2], targetRef: {kind: Pod, namespace: ns, name: b}}]}`
	sixth       = `{addressType: IPv6, ports: [{name: "", port: 8080, protocol: TCP}], endpoints: [{addresses: ['fd00::3'], targetRef: {kind: Pod, namespace: ns, name: c}}]}`
	// What nobody but a user says.
	byHand  = `{ports: [{name: "", port: 2379, protocol: TCP}], endpoints: [{addresses: [192.0.2.1]}]}`
	notPods = `{ports: [{name: "", port: 2379, protocol: TCP}], endpoints: [{addresses: [10.61.0.1], targetRef: {kind: Node, namespace: ns, name: a}}]}`
	foreign = `{ports: [{name: "", port: 2379, protocol: TCP}], endpoints: [{addresses: [10.61.0.1], targetRef: {kind: Pod, namespace: other, name: a}}]}`
	lie     = `{ports: [{name: "", port: 2379, protocol: TCP}], endpoints: [{addresses: [192.0.2.1], targetRef: {kind: Pod, namespace: ns, name: a}}]}`
	gone    = `{ports: [{name: "", port: 2379, protocol: TCP}], endpoints: [{addresses: [10.61.0.9], targetRef: {kind: Pod, namespace: ns, name: gone}}]}`
)

func TestWhereTheProxyLeads(t *testing.T) {
	for name, tc := range map[string]struct {
		id, spec string
		slices   []string
		want     []string // where it leads, by and by
		err      string
	}{
		"the only port":                {id: "s", spec: plainPort, slices: []string{two}, want: []string{"|10.61.0.1|8080|/x", "|10.61.0.2|8080|/x"}},
		"the only port, by number":     {id: "https:s:80", spec: plainPort, slices: []string{two}, want: []string{"https|10.61.0.1|8080|/x", "https|10.61.0.2|8080|/x"}},
		"the only one that has a name": {id: "s", spec: "ports: [{name: web, port: 80}]", slices: []string{named}, want: []string{"|10.61.0.1|8080|/x"}},
		"by name":                      {id: "http:s:web", spec: namedPorts, slices: []string{named}, want: []string{"http|10.61.0.1|8080|/x"}},
		"by number, and TCP":           {id: "s:80", spec: namedPorts, slices: []string{named}, want: []string{"|10.61.0.1|8080|/x"}},
		"numbers differ":               {id: "s:81", spec: namedPorts, slices: []string{named, otherNumber}, want: []string{"|10.61.0.2|9000|/x"}},
		"only one is ready":            {id: "s", spec: plainPort, slices: []string{unready, sixth}, want: []string{"|fd00::3|8080|/x"}},
		"the first family":             {id: "s", spec: plainPort + "\nipFamilies: [IPv6, IPv4]", slices: []string{two, sixth}, want: []string{"|fd00::3|8080|/x"}},
		"the others are not pods'": {id: "s", spec: plainPort, slices: []string{byHand, notPods, foreign, lie, gone, sixth},
			want: []string{"|fd00::3|8080|/x"}},

		"none":                    {id: "none", spec: plainPort, err: `services "none" not found`},
		"no such number":          {id: "s:82", spec: namedPorts, slices: []string{named}, err: `no service port 82 found for service "s"`},
		"no such name":            {id: "s:dns", spec: namedPorts, slices: []string{named}, err: `no service port "dns" found for service "s"`},
		"which":                   {id: "s", spec: namedPorts, slices: []string{named}, err: `no service port "" found for service "s": name one of web, admin`},
		"no ports":                {id: "s", spec: "clusterIP: None", err: `no service port "" found for service "s"`},
		"scheme":                  {id: "ftp:s:80", spec: plainPort, slices: []string{two}, err: `invalid service request "ftp:s:80"`},
		"external name":           {id: "s", spec: "type: ExternalName\nexternalName: example.com\n" + plainPort, slices: []string{two}, err: `no endpoints available for service "s": it stands for another name (example.com)`},
		"no endpoints":            {id: "s:80", spec: plainPort, err: `no endpoints available for service "s:80"`},
		"none is ready":           {id: "s", spec: plainPort, slices: []string{unready}, err: `no endpoints available for service "s"`},
		"a port of many numbers":  {id: "s:admin", spec: namedPorts, slices: []string{named}, err: `no endpoints available for service "s:admin"`},
		"written by hand":         {id: "s", spec: plainPort, slices: []string{byHand}, err: `no endpoints available for service "s": address not allowed: 192.0.2.1 is not said to be of a pod in namespace ns (targetRef)`},
		"not a pod":               {id: "s", spec: plainPort, slices: []string{notPods}, err: "10.61.0.1 is not said to be of a pod"},
		"another namespace's pod": {id: "s", spec: plainPort, slices: []string{foreign}, err: "10.61.0.1 is not said to be of a pod"},
		"not the pod's":           {id: "s", spec: plainPort, slices: []string{lie}, err: `no endpoints available for service "s": address not allowed: 192.0.2.1`},
		"no such pod":             {id: "s", spec: plainPort, slices: []string{gone}, err: `no endpoints available for service "s": pods "gone" not found`},
		"many reasons":            {id: "s", spec: plainPort, slices: []string{gone, gone, gone, gone, gone}, err: "; and 2 more"},
	} {
		t.Run(name, func(t *testing.T) {
			svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}}
			if err := yaml.UnmarshalStrict([]byte(tc.spec), &svc.Spec); err != nil {
				t.Fatal(err)
			}
			behind := &behindServices{pods: map[string]string{"a": "10.61.0.1", "b": "10.61.0.2", "c": "fd00::3"}}
			for _, text := range tc.slices {
				s := discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
				if err := yaml.UnmarshalStrict([]byte(text), &s); err != nil {
					t.Fatal(err)
				}
				behind.slices = append(behind.slices, s)
			}
			proxy := &ProxyREST{services: oneService{svc}, behind: behind}
			for range 100 { // that one of two is never chosen is less likely than that the machine fails
				_, err := proxy.Connect(t.Context(), tc.id, &corev1.ServiceProxyOptions{Path: "/x"}, nil)
				if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
					t.Fatalf("error %v, want %q", err, tc.err)
				}
				if err != nil && !apierrors.IsServiceUnavailable(err) && !apierrors.IsNotFound(err) && !apierrors.IsBadRequest(err) {
					t.Fatalf("%v is no answer", err)
				}
			}
			slices.Sort(behind.asked)
			if got := slices.Compact(behind.asked); !slices.Equal(got, tc.want) {
				t.Errorf("it leads to %q, want %q", got, tc.want)
			}
		})
	}
}

// A store that fails is no endpoint that may not be dialled.
func TestTheProxyTellsOfFaults(t *testing.T) {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	behind := &behindServices{broken: apierrors.NewInternalError(context.DeadlineExceeded)}
	var s discoveryv1.EndpointSlice
	if err := yaml.UnmarshalStrict([]byte(two), &s); err != nil {
		t.Fatal(err)
	}
	behind.slices = append(behind.slices, s)
	proxy := &ProxyREST{services: oneService{svc}, behind: behind}
	if _, err := proxy.Connect(t.Context(), "s", &corev1.ServiceProxyOptions{}, nil); !apierrors.IsInternalError(err) {
		t.Errorf("error %v, want that of the store", err)
	}
}
