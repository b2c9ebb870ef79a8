package registry_test

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"monopod.dev/monopod/internal/apiserver/registry/controllerrevision"
	"monopod.dev/monopod/internal/apiserver/registry/daemonset"
	"monopod.dev/monopod/internal/apiserver/registry/deployment"
	"monopod.dev/monopod/internal/apiserver/registry/endpoints"
	"monopod.dev/monopod/internal/apiserver/registry/endpointslice"
	"monopod.dev/monopod/internal/apiserver/registry/ingress"
	"monopod.dev/monopod/internal/apiserver/registry/ingressclass"
	"monopod.dev/monopod/internal/apiserver/registry/ipaddress"
	"monopod.dev/monopod/internal/apiserver/registry/limitrange"
	"monopod.dev/monopod/internal/apiserver/registry/networkpolicy"
	"monopod.dev/monopod/internal/apiserver/registry/podtemplate"
	"monopod.dev/monopod/internal/apiserver/registry/priorityclass"
	"monopod.dev/monopod/internal/apiserver/registry/replicaset"
	"monopod.dev/monopod/internal/apiserver/registry/replicationcontroller"
	"monopod.dev/monopod/internal/apiserver/registry/runtimeclass"
	"monopod.dev/monopod/internal/apiserver/registry/service"
	"monopod.dev/monopod/internal/apiserver/registry/servicecidr"
	"monopod.dev/monopod/internal/apiserver/registry/statefulset"
	"monopod.dev/monopod/internal/apiserver/resource"
)

// rules checks objects, given as YAML without their metadata. Each is named x.
type rules func(t *testing.T, object, old string) field.ErrorList

func rulesOf[T resource.Object, L runtime.Object](of resource.Of[T, L]) rules {
	read := func(t *testing.T, text string) T {
		t.Helper()
		obj := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
		if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
			t.Fatal(err)
		}
		if obj.GetName() == "" {
			obj.SetName("x")
		}
		if of.Namespaced {
			obj.SetNamespace("default")
		}
		if of.Default != nil {
			of.Default(obj)
		}
		obj.SetUID("u")
		if of.Prepare != nil {
			of.Prepare(obj)
		}
		return obj
	}
	return func(t *testing.T, object, old string) field.ErrorList {
		t.Helper()
		if old == "" {
			return of.Check(read(t, object))
		}
		was, is := read(t, old), read(t, object)
		was.SetResourceVersion("1")
		is.SetResourceVersion("1")
		return of.CheckUpdate(is, was)
	}
}

// ruleCase is an object that is new, or replaces old where that is not empty, and the start of the only error; empty: there is none.
type ruleCase struct {
	rules             rules
	object, old, want string
}

func (tc ruleCase) check(t *testing.T) {
	errs := tc.rules(t, tc.object, tc.old)
	switch {
	case tc.want == "" && len(errs) > 0:
		t.Errorf("refused: %v", errs)
	case tc.want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), tc.want)):
		t.Errorf("errors %v, want one that begins with %q", errs, tc.want)
	}
}

func TestRules(t *testing.T) {
	class, handler := rulesOf(priorityclass.Resource()), rulesOf(runtimeclass.Resource())
	slice, ep := rulesOf(endpointslice.Resource()), rulesOf(endpoints.Resource())
	svc := rulesOf(service.Resource())
	limits := rulesOf(limitrange.Resource())
	policy := rulesOf(networkpolicy.Resource())
	ip, cidr := rulesOf(ipaddress.Resource()), rulesOf(servicecidr.Resource())
	ing, ingClass := rulesOf(ingress.Resource()), rulesOf(ingressclass.Resource())
	revision, template := rulesOf(controllerrevision.Resource()), rulesOf(podtemplate.Resource())
	deploy, set, rc := rulesOf(deployment.Resource()), rulesOf(replicaset.Resource()), rulesOf(replicationcontroller.Resource())
	sts, ds := rulesOf(statefulset.Resource()), rulesOf(daemonset.Resource())
	// with is the specification of a workload with more fields than it must have, of the ways to give them.
	const selector, made = "selector: {matchLabels: {a: b}}", "template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}"
	with := func(more string) string { return "spec: {" + selector + ", " + made + more + "}" }
	// claiming is a workload with a claim data, of which its container has more.
	claiming := func(more, claim string) string {
		set := with(", volumeClaimTemplates: [{metadata: {name: data}, spec: {resources: {requests: {storage: 1Gi}}, " + claim + "}}]")
		return strings.Replace(set, "image: i", "image: i"+more, 1)
	}
	for name, tc := range map[string]ruleCase{
		"class":                      {class, "value: 5", "", ""},
		"class, negative":            {class, "value: -5", "", ""},
		"class, too high":            {class, "value: 1000000001", "", "value: Forbidden: maximum allowed value of a user defined priority is 1000000000"},
		"class of the system":        {class, "{metadata: {name: system-node-critical}, value: 2000001000}", "", ""},
		"class like the system's":    {class, "{metadata: {name: system-mine}, value: 1}", "", "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved"},
		"class, policy":              {class, "{value: 1, preemptionPolicy: Sometimes}", "", `preemptionPolicy: Unsupported value: "Sometimes"`},
		"class, value changes":       {class, "value: 6", "value: 5", "value: Forbidden: may not be changed in an update."},
		"class, policy changes":      {class, "{value: 5, preemptionPolicy: Never}", "value: 5", "preemptionPolicy: Invalid value"},
		"class, description changes": {class, "{value: 5, description: new}", "value: 5", ""},

		"handler":             {handler, "{handler: runc, overhead: {podFixed: {cpu: 1}}, scheduling: {nodeSelector: {a: b}, tolerations: [{key: a}]}}", "", ""},
		"handler is missing":  {handler, "{}", "", "handler: Invalid value"},
		"handler with dots":   {handler, "handler: a.b", "", "handler: Invalid value"},
		"negative overhead":   {handler, `{handler: runc, overhead: {podFixed: {cpu: "-1"}}}`, "", "overhead.podFixed[cpu]: Invalid value"},
		"selector":            {handler, `{handler: runc, scheduling: {nodeSelector: {a: "b c"}}}`, "", "scheduling.nodeSelector: Invalid value"},
		"tolerations twice":   {handler, `{handler: runc, scheduling: {tolerations: [{key: a}, {key: a}]}}`, "", "scheduling.tolerations[1]: Duplicate value"},
		"the handler changes": {handler, "handler: crun", "handler: runc", "handler: Invalid value"},

		"limits":                     {limits, "spec: {limits: [{type: Container, max: {cpu: 2}, min: {cpu: 100m}, maxLimitRequestRatio: {cpu: 4}}, {type: Pod, max: {example.com/gpu: 1}}]}", "", ""},
		"limits of claims":           {limits, "spec: {limits: [{type: PersistentVolumeClaim, max: {storage: 2Gi}}]}", "", ""},
		"limits of claims, of none":  {limits, "spec: {limits: [{type: PersistentVolumeClaim, max: {example.com/iops: 2}}]}", "", "spec.limits[0].limits: Required value"},
		"limits of others":           {limits, "spec: {limits: [{type: example.com/thing, max: {'any/thing': 2}}]}", "", ""},
		"limits of what":             {limits, "spec: {limits: [{type: Volume, max: {cpu: 2}}]}", "", "spec.limits[0].type: Invalid value"},
		"limits, twice":              {limits, "spec: {limits: [{type: Pod}, {type: Pod}]}", "", "spec.limits[1].type: Duplicate value"},
		"limits of no resource":      {limits, "spec: {limits: [{type: Pod, min: {disk: 1}}]}", "", "spec.limits[0].min[disk]: Invalid value"},
		"limits, defaults of pods":   {limits, "spec: {limits: [{type: Pod, default: {cpu: 1}}]}", "", "spec.limits[0].default: Forbidden"},
		"limits, min over max":       {limits, "spec: {limits: [{type: Pod, min: {cpu: 2}, max: {cpu: 1}}]}", "", "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1"},
		"limits, default under min":  {limits, "spec: {limits: [{type: Container, min: {cpu: 2}, defaultRequest: {cpu: 1}}]}", "", "spec.limits[0].defaultRequest[cpu]: Invalid value: \"1\": min value 2 is greater than default request value 1"},
		"limits, default over max":   {limits, "spec: {limits: [{type: Container, max: {cpu: 1}, default: {cpu: 2}, defaultRequest: {cpu: 1}}]}", "", "spec.limits[0].default[cpu]: Invalid value: \"2\": default value 2 is greater than max value 1"},
		"limits, request over limit": {limits, "spec: {limits: [{type: Container, default: {cpu: 1}, defaultRequest: {cpu: 2}}]}", "", "spec.limits[0].defaultRequest[cpu]: Invalid value: \"2\": default request value 2 is greater than default value 1"},
		"limits, devices overbooked": {limits, "spec: {limits: [{type: Container, default: {a.b/c: 2}, defaultRequest: {a.b/c: 1}}]}", "", "spec.limits[0].defaultRequest[a.b/c]: Invalid value"},
		"limits, ratio below one":    {limits, "spec: {limits: [{type: Pod, maxLimitRequestRatio: {cpu: 500m}}]}", "", "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1"},
		"limits, ratio of nobody":    {limits, "spec: {limits: [{type: Pod, min: {cpu: 1}, max: {cpu: 2}, maxLimitRequestRatio: {cpu: 3}}]}", "", "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"3\": ratio 3 is greater than max/min = 2.000000"},
		"limits change":              {limits, "spec: {limits: [{type: Volume}]}", "spec: {limits: [{type: Pod}]}", "spec.limits[0].type: Invalid value"},

		"ingress":                    {ing, "spec: {ingressClassName: nginx, tls: [{hosts: [a.example.com, '*.b.example.com'], secretName: cert}], rules: [{host: '*.b.example.com', http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: 1st, port: {name: http}}}}]}}]}", "", ""},
		"ingress to a resource":      {ing, "spec: {defaultBackend: {resource: {apiGroup: example.com, kind: Bucket, name: a}}}", "", ""},
		"ingress to nowhere":         {ing, "spec: {}", "", "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"},
		"ingress, no backend":        {ing, "spec: {defaultBackend: {}}", "", `spec.defaultBackend: Invalid value: "": resource or service backend is required`},
		"ingress, two backends":      {ing, "spec: {defaultBackend: {resource: {kind: A, name: a}, service: {name: a}}}", "", `spec.defaultBackend: Invalid value: "": cannot set both`},
		"ingress, no port":           {ing, "spec: {defaultBackend: {service: {name: a}}}", "", "spec.defaultBackend: Required value: port name or number is required"},
		"ingress, two ports":         {ing, "spec: {defaultBackend: {service: {name: a, port: {name: a, number: 1}}}}", "", `spec.defaultBackend: Invalid value: "": cannot set both port name & port number`},
		"ingress, port":              {ing, "spec: {defaultBackend: {service: {name: a, port: {number: 70000}}}}", "", "spec.defaultBackend.service.port.number: Invalid value"},
		"ingress, no name":           {ing, "spec: {defaultBackend: {service: {port: {number: 80}}}}", "", "spec.defaultBackend.service.name: Required value"},
		"ingress, path up":           {ing, "spec: {rules: [{http: {paths: [{path: /a/../b, pathType: Exact, backend: {service: {name: a, port: {number: 80}}}}]}}]}", "", `spec.rules[0].http.paths[0].path: Invalid value: "/a/../b": must not contain '/../'`},
		"ingress, path up at last":   {ing, "spec: {rules: [{http: {paths: [{path: /a/.., pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}}]}", "", `spec.rules[0].http.paths[0].path: Invalid value: "/a/..": cannot end with '/..'`},
		"ingress, any path":          {ing, "spec: {rules: [{http: {paths: [{pathType: ImplementationSpecific, backend: {service: {name: a, port: {number: 80}}}}]}}]}", "", ""},
		"ingress, relative path":     {ing, "spec: {rules: [{http: {paths: [{path: a, pathType: ImplementationSpecific, backend: {service: {name: a, port: {number: 80}}}}]}}]}", "", "spec.rules[0].http.paths[0].path: Invalid value"},
		"ingress, no path":           {ing, "spec: {rules: [{http: {paths: []}}]}", "", "spec.rules[0].http.paths: Required value"},
		"ingress, no type":           {ing, "spec: {rules: [{http: {paths: [{path: /}]}}]}", "", "spec.rules[0].http.paths[0].pathType: Required value"},
		"ingress, what type":         {ing, "spec: {rules: [{http: {paths: [{path: /, pathType: Regex, backend: {service: {name: a, port: {number: 80}}}}]}}]}", "", `spec.rules[0].http.paths[0].pathType: Unsupported value: "Regex"`},
		"ingress, wild in the midst": {ing, "spec: {rules: [{host: 'a.*.example.com'}]}", "", "spec.rules[0].host: Invalid value"},
		"ingress, classes":           {ing, "{metadata: {annotations: {kubernetes.io/ingress.class: a}}, spec: {ingressClassName: b, rules: [{}]}}", "", "annotations.kubernetes.io/ingress.class: Invalid value"},
		"ingress, certificate":       {ing, "spec: {rules: [{}], tls: [{secretName: A}]}", "", "spec.tls[0].secretName: Invalid value"},

		"policy":                       {policy, "spec: {podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{ports: [{port: http}, {port: 80, endPort: 90, protocol: SCTP}], from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}, {podSelector: {}, namespaceSelector: {}}]}]}", "", ""},
		"policy, type":                 {policy, "spec: {podSelector: {}, policyTypes: [Sideways]}", "", `spec.policyTypes[0]: Unsupported value: "Sideways"`},
		"policy, types":                {policy, "spec: {podSelector: {}, policyTypes: [Ingress, Egress, Ingress]}", "", "spec.policyTypes: Invalid value"},
		"policy, selector":             {policy, "spec: {podSelector: {matchLabels: {a: 'b c'}}}", "", "spec.podSelector.matchLabels: Invalid value"},
		"policy, no peer":              {policy, "spec: {podSelector: {}, ingress: [{from: [{}]}]}", "", "spec.ingress[0].from[0]: Required value: must specify a peer"},
		"policy, two peers":            {policy, "spec: {podSelector: {}, egress: [{to: [{podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}]}]}", "", "spec.egress[0].to[0]: Forbidden: may not specify both ipBlock and another peer"},
		"policy, no block":             {policy, "spec: {podSelector: {}, egress: [{to: [{ipBlock: {}}]}]}", "", "spec.egress[0].to[0].ipBlock.cidr: Required value"},
		"policy, block":                {policy, "spec: {podSelector: {}, egress: [{to: [{ipBlock: {cidr: 10.0.0.1/8}}]}]}", "", "spec.egress[0].to[0].ipBlock.cidr: Invalid value"},
		"policy, a block that was":     {policy, "spec: {podSelector: {}, egress: [{to: [{ipBlock: {cidr: 10.0.0.1/8}}]}, {}]}", "spec: {podSelector: {}, egress: [{to: [{ipBlock: {cidr: 10.0.0.1/8}}]}]}", ""},
		"policy, exception":            {policy, "spec: {podSelector: {}, egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16]}}]}]}", "", "spec.egress[0].to[0].ipBlock.except[0]: Invalid value"},
		"policy, exception of all":     {policy, "spec: {podSelector: {}, egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/8]}}]}]}", "", "spec.egress[0].to[0].ipBlock.except[0]: Invalid value"},
		"policy, protocol":             {policy, "spec: {podSelector: {}, ingress: [{ports: [{protocol: ICMP}]}]}", "", `spec.ingress[0].ports[0].protocol: Unsupported value: "ICMP"`},
		"policy, port":                 {policy, "spec: {podSelector: {}, ingress: [{ports: [{port: 0}]}]}", "", "spec.ingress[0].ports[0].port: Invalid value"},
		"policy, port's name":          {policy, "spec: {podSelector: {}, ingress: [{ports: [{port: 'a b'}]}]}", "", "spec.ingress[0].ports[0].port: Invalid value"},
		"policy, end without a port":   {policy, "spec: {podSelector: {}, ingress: [{ports: [{endPort: 80}]}]}", "", "spec.ingress[0].ports[0].endPort: Invalid value"},
		"policy, end of a name":        {policy, "spec: {podSelector: {}, ingress: [{ports: [{port: http, endPort: 80}]}]}", "", "spec.ingress[0].ports[0].endPort: Invalid value"},
		"policy, end before the start": {policy, "spec: {podSelector: {}, ingress: [{ports: [{port: 90, endPort: 80}]}]}", "", "spec.ingress[0].ports[0].endPort: Invalid value"},

		"ingress class":                   {ingClass, "spec: {controller: example.com/nginx, parameters: {apiGroup: example.com, kind: Settings, name: a}}", "", ""},
		"ingress class, controller":       {ingClass, "spec: {controller: nginx}", "", "spec.controller: Invalid value"},
		"ingress class, no namespace":     {ingClass, "spec: {controller: a.b/c, parameters: {kind: Settings, name: a, scope: Namespace}}", "", "spec.parameters.namespace: Required value"},
		"ingress class, namespace":        {ingClass, "spec: {controller: a.b/c, parameters: {kind: Settings, name: a, namespace: default}}", "", "spec.parameters.namespace: Forbidden"},
		"ingress class, scope":            {ingClass, "spec: {controller: a.b/c, parameters: {kind: Settings, name: a, scope: World}}", "", `spec.parameters.scope: Unsupported value: "World"`},
		"ingress class, kind":             {ingClass, "spec: {controller: a.b/c, parameters: {kind: a/b, name: a}}", "", "spec.parameters.kind: Invalid value"},
		"address":                         {ip, "{metadata: {name: 10.1.2.3}, spec: {parentRef: {resource: services, namespace: a, name: b}}}", "", ""},
		"address, IPv6":                   {ip, "{metadata: {name: 'fd00::1'}, spec: {parentRef: {group: a.b, resource: c, name: d}}}", "", ""},
		"address, name":                   {ip, "{metadata: {name: x}, spec: {parentRef: {resource: services, name: b}}}", "", "metadata.name: Invalid value"},
		"address, written otherwise":      {ip, "{metadata: {name: 'fd00:0::1'}, spec: {parentRef: {resource: services, name: b}}}", "", `metadata.name: Invalid value: "fd00:0::1": must be in canonical form (fd00::1)`},
		"address of nobody":               {ip, "{metadata: {name: 10.1.2.3}}", "", "spec.parentRef: Required value"},
		"address, no resource":            {ip, "{metadata: {name: 10.1.2.3}, spec: {parentRef: {name: b}}}", "", "spec.parentRef.resource: Required value"},
		"address, another's":              {ip, "{metadata: {name: 10.1.2.3}, spec: {parentRef: {resource: a, name: b}}}", "{metadata: {name: 10.1.2.3}, spec: {parentRef: {resource: a, name: c}}}", "spec.parentRef: Invalid value"},
		"range":                           {cidr, "spec: {cidrs: [10.1.0.0/24, 'fd00::/64']}", "", ""},
		"range, none":                     {cidr, "{}", "", "spec.cidrs: Required value: at least one CIDR required"},
		"range, three":                    {cidr, "spec: {cidrs: [10.1.0.0/24, 'fd00::/64', 10.2.0.0/24]}", "", "spec.cidrs: Invalid value"},
		"range, one family":               {cidr, "spec: {cidrs: [10.1.0.0/24, 10.2.0.0/24]}", "", "spec.cidrs: Invalid value"},
		"range, more bits":                {cidr, "spec: {cidrs: [10.1.0.1/24]}", "", "spec.cidrs[0]: Invalid value"},
		"range, an address":               {cidr, "spec: {cidrs: [10.1.0.1]}", "", "spec.cidrs[0]: Invalid value"},
		"range, written otherwise":        {cidr, "spec: {cidrs: ['fd00:0::/64']}", "", "spec.cidrs[0]: Invalid value"},
		"range, another one":              {cidr, "spec: {cidrs: [10.2.0.0/24]}", "spec: {cidrs: [10.1.0.0/24]}", "spec.cidrs[0]: Invalid value"},
		"range, one more":                 {cidr, "spec: {cidrs: [10.1.0.0/24, 'fd00::/64']}", "spec: {cidrs: [10.1.0.0/24]}", ""},
		"range, one less":                 {cidr, "spec: {cidrs: [10.1.0.0/24]}", "spec: {cidrs: [10.1.0.0/24, 'fd00::/64']}", "spec.cidrs: Invalid value"},
		"ingress class, other controller": {ingClass, "spec: {controller: a.b/d}", "spec: {controller: a.b/c}", "spec.controller: Invalid value"},

		"revision":           {revision, "{revision: 1, data: {a: b}}", "", ""},
		"negative revision":  {revision, "{revision: -1, data: {a: b}}", "", "revision: Invalid value"},
		"revision of none":   {revision, "{revision: 1}", "", "data: Required value"},
		"revision of a word": {revision, "{revision: 1, data: word}", "", "data: Invalid value"},
		"data changes":       {revision, "{revision: 1, data: {a: c}}", "{revision: 1, data: {a: b}}", "data: Invalid value"},
		"the number changes": {revision, "{revision: 2, data: {a: b}}", "{revision: 1, data: {a: b}}", ""},

		"template":                       {template, "template: {spec: {containers: [{name: c, image: i}]}}", "", ""},
		"template's labels":              {template, `template: {metadata: {labels: {a: "b c"}}, spec: {containers: [{name: c, image: i}]}}`, "", "template.labels: Invalid value"},
		"template of what is not there":  {template, "template: {spec: {schedulingGroup: {}, containers: [{name: c, image: i}]}}", "", "template.spec.schedulingGroup: Forbidden"},
		"template without its container": {template, "template: {spec: {}}", "", "template.spec.containers: Required value"},

		"deployment":                       {deploy, with(""), "", ""},
		"deployment of every field":        {deploy, with(", replicas: 0, strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 100%}}, minReadySeconds: 1, revisionHistoryLimit: 0, paused: true, progressDeadlineSeconds: 2"), "", ""},
		"deployment, name":                 {deploy, "{metadata: {name: A}, " + with("") + "}", "", "metadata.name: Invalid value"},
		"deployment, replicas":             {deploy, with(", replicas: -1"), "", "spec.replicas: Invalid value: -1"},
		"deployment selects all":           {deploy, "spec: {selector: {}, " + made + "}", "", "spec.selector: Invalid value: {}: empty selector is invalid for deployment"},
		"deployment, selector":             {deploy, `spec: {selector: {matchLabels: {a: "b c"}}, ` + made + "}", "", "spec.selector.matchLabels: Invalid value"},
		"deployment selects others":        {deploy, "spec: {selector: {matchLabels: {a: c}}, " + made + "}", "", "spec.template.metadata.labels: Invalid value"},
		"deployment, selector changes":     {deploy, "spec: {selector: {matchExpressions: [{key: a, operator: Exists}]}, " + made + "}", with(""), "spec.selector: Invalid value"},
		"deployment, image changes":        {deploy, strings.Replace(with(""), "image: i", "image: j", 1), with(""), ""},
		"deployment of pods that end":      {deploy, strings.Replace(with(""), "containers", "restartPolicy: Never, containers", 1), "", "spec.template.spec.restartPolicy: Unsupported value"},
		"deployment of pods with deadline": {deploy, strings.Replace(with(""), "containers", "activeDeadlineSeconds: 5, containers", 1), "", "spec.template.spec.activeDeadlineSeconds: Forbidden"},
		"deployment without containers":    {deploy, strings.Replace(with(""), "[{name: c, image: i}]", "[]", 1), "", "spec.template.spec.containers: Required value"},
		"deployment, what was wrong stays": {deploy, strings.Replace(with(", replicas: 2"), "containers", "schedulingGroup: {}, containers", 1), strings.Replace(with(""), "containers", "schedulingGroup: {}, containers", 1), ""},
		"deployment, more is wrong":        {deploy, strings.Replace(with(""), "containers", "schedulingGroup: {}, restartPolicy: Never, containers", 1), strings.Replace(with(""), "containers", "schedulingGroup: {}, containers", 1), "spec.template.spec.restartPolicy: Unsupported value"},
		"deployment, strategy":             {deploy, with(", strategy: {type: Some}"), "", "spec.strategy: Unsupported value"},
		"deployment, recreated and rolled": {deploy, with(", strategy: {type: Recreate, rollingUpdate: {}}"), "", "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"},
		"deployment that cannot roll":      {deploy, with(", strategy: {rollingUpdate: {maxSurge: 0%, maxUnavailable: 0}}"), "", "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"},
		"deployment, share":                {deploy, with(", strategy: {rollingUpdate: {maxSurge: some}}"), "", "spec.strategy.rollingUpdate.maxSurge: Invalid value"},
		"deployment, negative share":       {deploy, with(", strategy: {rollingUpdate: {maxSurge: -1}}"), "", "spec.strategy.rollingUpdate.maxSurge: Invalid value: -1"},
		"deployment, more than all":        {deploy, with(", strategy: {rollingUpdate: {maxUnavailable: 101%}}"), "", `spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%`},
		"deployment, twice as many":        {deploy, with(", strategy: {rollingUpdate: {maxSurge: 200%}}"), "", ""},
		"deployment, history":              {deploy, with(", revisionHistoryLimit: -1"), "", "spec.revisionHistoryLimit: Invalid value"},
		"deployment, too late":             {deploy, with(", minReadySeconds: 9, progressDeadlineSeconds: 9"), "", "spec.progressDeadlineSeconds: Invalid value: 9: must be greater than minReadySeconds"},
		"deployment, back to what":         {deploy, "{metadata: {annotations: {deprecated.deployment.rollback.to: first}}, " + with("") + "}", "", "metadata.annotations[deprecated.deployment.rollback.to]: Invalid value"},
		"replica set":                      {set, with(", replicas: 3, minReadySeconds: 1"), "", ""},
		"replica set, replicas":            {set, with(", replicas: -1"), "", "spec.replicas: Invalid value"},
		"replica set selects others":       {set, "spec: {selector: {matchLabels: {a: c}}, " + made + "}", "", "spec.template.metadata.labels: Invalid value"},
		"replica set, selector changes":    {set, "spec: {selector: {matchExpressions: [{key: a, operator: Exists}]}, " + made + "}", with(""), "spec.selector: Invalid value"},
		"replica set of no pods that stay": {set, strings.Replace(with(""), "containers", "restartPolicy: OnFailure, containers", 1), "", "spec.template.spec.restartPolicy: Unsupported value"},
		"controller":                       {rc, "spec: {" + made + "}", "", ""},
		"controller of two":                {rc, "spec: {selector: {a: b}, replicas: 2, minReadySeconds: 1, " + made + "}", "", ""},
		"controller of no template":        {rc, "spec: {selector: {a: b}}", "", "spec.template: Required value"},
		"controller of no labels":          {rc, "spec: {template: {spec: {containers: [{name: c, image: i}]}}}", "", "spec.selector: Required value"},
		"controller selects others":        {rc, "spec: {selector: {a: c}, " + made + "}", "", "spec.template.metadata.labels: Invalid value"},
		"controller selects more":          {rc, "spec: {selector: {a: b}, template: {metadata: {labels: {a: b, c: d}}, spec: {containers: [{name: c, image: i}]}}}", "spec: {" + made + "}", ""},
		"controller, replicas":             {rc, "spec: {replicas: -1, " + made + "}", "", "spec.replicas: Invalid value"},

		"stateful set":                  {sts, with(""), "", ""},
		"stateful set of every field":   {sts, with(", replicas: 3, serviceName: web, podManagementPolicy: Parallel, updateStrategy: {rollingUpdate: {partition: 2, maxUnavailable: 50%}}, revisionHistoryLimit: -1, minReadySeconds: 1, persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}, ordinals: {start: 5}"), "", ""},
		"stateful set, name":            {sts, "{metadata: {name: a.b}, " + with("") + "}", "", "metadata.name: Invalid value"},
		"stateful set, service":         {sts, with(", serviceName: a.b"), "", "spec.serviceName: Invalid value"},
		"stateful set, service stays":   {sts, with(", replicas: 2, serviceName: a.b"), with(", serviceName: a.b"), ""},
		"stateful set, service changes": {sts, with(", serviceName: b"), with(", serviceName: a"), "spec: Forbidden: updates to statefulset spec for fields other than"},
		"stateful set, all that may change": {sts, with(", replicas: 3, updateStrategy: {type: OnDelete}, revisionHistoryLimit: 1, minReadySeconds: 1, persistentVolumeClaimRetentionPolicy: {whenScaled: Delete}, ordinals: {start: 5}"),
			strings.Replace(with(""), "image: i", "image: j", 1), ""},
		"stateful set of claims":          {sts, claiming(", volumeMounts: [{name: data, mountPath: /data}]", "accessModes: [ReadWriteOnce]"), "", ""},
		"stateful set of devices":         {sts, claiming(", volumeDevices: [{name: data, devicePath: /dev/data}]", "accessModes: [ReadWriteOnce], volumeMode: Block"), "", ""},
		"stateful set, claim's mode":      {sts, claiming("", "accessModes: []"), "", "spec.volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required"},
		"stateful set, claim's source":    {sts, claiming("", "accessModes: [ReadWriteOnce], dataSourceRef: {kind: PersistentVolumeClaim, name: d, namespace: ns}"), "", "spec.volumeClaimTemplates[0].spec.dataSourceRef.namespace: Forbidden: not supported by Monopod yet"},
		"stateful set, claim's name":      {sts, strings.Replace(claiming("", "accessModes: [ReadWriteOnce]"), "name: data", "name: A_B", 1), "", "spec.template.spec.volumes[0].name: Invalid value"},
		"stateful set, claims change":     {sts, claiming("", "accessModes: [ReadWriteOnce]"), claiming("", "accessModes: [ReadOnlyMany]"), "spec: Forbidden: updates to statefulset spec for fields other than"},
		"stateful set, claims stay":       {sts, strings.Replace(claiming("", ""), "image: i", "image: j", 1), claiming("", ""), ""},
		"stateful set, policy":            {sts, with(", podManagementPolicy: Some"), "", `spec.podManagementPolicy: Invalid value: "Some": must be 'OrderedReady' or 'Parallel'`},
		"stateful set, strategy":          {sts, with(", updateStrategy: {type: Some}"), "", "spec.updateStrategy: Invalid value"},
		"stateful set, on delete, rolled": {sts, with(", updateStrategy: {type: OnDelete, rollingUpdate: {partition: 1}}"), "", "spec.updateStrategy.rollingUpdate: Invalid value"},
		"stateful set, partition":         {sts, with(", updateStrategy: {rollingUpdate: {partition: -1}}"), "", "spec.updateStrategy.rollingUpdate.partition: Invalid value"},
		"stateful set that cannot roll":   {sts, with(", updateStrategy: {rollingUpdate: {maxUnavailable: 0%}}"), "", `spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "0%": cannot be 0`},
		"stateful set, more than all":     {sts, with(", updateStrategy: {rollingUpdate: {maxUnavailable: 200%}}"), "", "spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value"},
		"stateful set, ordinals":          {sts, with(", ordinals: {start: -1}"), "", "spec.ordinals.start: Invalid value"},
		"stateful set, retention":         {sts, with(", persistentVolumeClaimRetentionPolicy: {whenDeleted: Keep}"), "", `spec.persistentVolumeClaimRetentionPolicy.whenDeleted: Unsupported value: "Keep"`},
		"stateful set, names of pods":     {sts, strings.Replace(with(""), "containers", "hostname: A_B, subdomain: C_D, containers", 1), "", ""},
		"daemon set":                      {ds, with(""), "", ""},
		"daemon set of every field":       {ds, with(", updateStrategy: {rollingUpdate: {maxSurge: 100%, maxUnavailable: 0}}, minReadySeconds: 1, revisionHistoryLimit: 0"), "", ""},
		"daemon set without selector":     {ds, "spec: {" + made + "}", "", "spec.template.metadata.labels: Invalid value"},
		"daemon set selects all":          {ds, "spec: {selector: {}, " + made + "}", "", "spec.selector: Invalid value: {}: empty selector is invalid for daemonset"},
		"daemon set, selector changes":    {ds, "spec: {selector: {matchExpressions: [{key: a, operator: Exists}]}, " + made + "}", with(""), "spec.selector: Invalid value"},
		"daemon set, strategy":            {ds, with(", updateStrategy: {type: Some}"), "", "spec.updateStrategy: Unsupported value"},
		"daemon set, too few and many":    {ds, with(", updateStrategy: {rollingUpdate: {maxSurge: 1}}"), "", "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"},
		"daemon set that cannot roll":     {ds, with(", updateStrategy: {rollingUpdate: {maxUnavailable: 0}}"), "", "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"},
		"daemon set, more than all":       {ds, with(", updateStrategy: {rollingUpdate: {maxSurge: 101%, maxUnavailable: 0}}"), "", "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value"},
		"daemon set of pods that end":     {ds, strings.Replace(with(""), "containers", "restartPolicy: Never, containers", 1), "", "spec.template.spec.restartPolicy: Unsupported value"},
		"daemon set, templates":           {ds, "{metadata: {annotations: {deprecated.daemonset.template.generation: some}}, " + with("") + "}", "", "metadata.annotations[deprecated.daemonset.template.generation]: Invalid value"},

		"endpoints":                 {ep, "subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 80}]}]", "", ""},
		"endpoints, not ready":      {ep, "subsets: [{notReadyAddresses: [{ip: 'fd00::1'}]}]", "", ""},
		"endpoints without any":     {ep, "subsets: [{}]", "", "subsets[0]: Required value"},
		"endpoints of loopback":     {ep, "subsets: [{addresses: [{ip: 127.0.0.1}]}]", "", "subsets[0].addresses[0].ip: Invalid value"},
		"endpoints, written oddly":  {ep, "subsets: [{addresses: [{ip: 10.0.0.01}]}]", "", "subsets[0].addresses[0].ip: Invalid value"},
		"endpoints, two ports":      {ep, "subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 80}, {port: 81, name: b}]}]", "", "subsets[0].ports[0].name: Required value"},
		"endpoints, port":           {ep, "subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 0}]}]", "", "subsets[0].ports[0].port: Invalid value"},
		"endpoints, protocol":       {ep, "subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 1, protocol: ICMP}]}]", "", `subsets[0].ports[0].protocol: Unsupported value: "ICMP"`},
		"endpoints, when":           {ep, "metadata: {annotations: {endpoints.kubernetes.io/last-change-trigger-time: noon}}", "", "metadata.annotations[endpoints.kubernetes.io/last-change-trigger-time]: Invalid value"},
		"endpoints, old ones stay":  {ep, "{metadata: {labels: {a: b}}, subsets: [{}]}", "subsets: [{}]", ""},
		"slice":                     {slice, "{addressType: IPv4, endpoints: [{addresses: [10.0.0.1]}], ports: [{port: 80}]}", "", ""},
		"slice of names":            {slice, "{addressType: FQDN, endpoints: [{addresses: [a.example.com]}]}", "", ""},
		"slice of no kind":          {slice, "endpoints: []", "", "addressType: Required value"},
		"slice of the other family": {slice, "{addressType: IPv6, endpoints: [{addresses: [10.0.0.1]}]}", "", "endpoints[0].addresses[0]: Invalid value"},
		"slice without addresses":   {slice, "{addressType: IPv4, endpoints: [{addresses: []}]}", "", "endpoints[0].addresses: Required value"},
		"slice of loopback":         {slice, "{addressType: IPv6, endpoints: [{addresses: ['::1']}]}", "", "endpoints[0].addresses[0]: Invalid value"},
		"slice, two ports":          {slice, "{addressType: IPv4, endpoints: [], ports: [{port: 80}, {port: 81}]}", "", "ports[1].name: Duplicate value"},
		"slice, hints twice":        {slice, "{addressType: IPv4, endpoints: [{addresses: [10.0.0.1], hints: {forZones: [{name: a}, {name: a}]}}]}", "", "endpoints[0].hints.forZones[1]: Duplicate value"},
		"slice, too many":           {slice, "{addressType: IPv4, endpoints: [" + strings.Repeat("{addresses: [10.0.0.1]},", 1001) + "]}", "", "endpoints: Too many"},
		"service":                   {svc, "spec: {ports: [{port: 80}]}", "", ""},
		"service of every field": {svc, `spec: {type: LoadBalancer, ports: [{name: a, port: 80, targetPort: web, appProtocol: kubernetes.io/h2c}, {name: b, port: 80, protocol: UDP}],
			selector: {a: b}, sessionAffinity: ClientIP, externalIPs: [192.0.2.1], loadBalancerSourceRanges: [10.0.0.0/8], loadBalancerClass: example.com/x,
			externalTrafficPolicy: Local, internalTrafficPolicy: Local, trafficDistribution: PreferSameNode, publishNotReadyAddresses: true}`, "", ""},
		"service, name":                {svc, "{metadata: {name: 1web}, spec: {ports: [{port: 80}]}}", "", "metadata.name: Invalid value"},
		"service without ports":        {svc, "spec: {}", "", "spec.ports: Required value"},
		"headless without ports":       {svc, "spec: {clusterIP: None, clusterIPs: [None]}", "", ""},
		"headless with node ports":     {svc, "spec: {type: NodePort, clusterIP: None, clusterIPs: [None], ports: [{port: 80}]}", "", "spec.clusterIPs[0]: Invalid value"},
		"service of a kind":            {svc, "spec: {type: Magic, ports: [{port: 80}]}", "", `spec.type: Unsupported value: "Magic"`},
		"external name":                {svc, "spec: {type: ExternalName, externalName: example.com.}", "", ""},
		"external name is missing":     {svc, "spec: {type: ExternalName}", "", "spec.externalName: Required value"},
		"external name with address":   {svc, "spec: {type: ExternalName, externalName: a.b, clusterIP: 10.43.0.1, clusterIPs: [10.43.0.1]}", "", "spec.clusterIPs: Forbidden"},
		"service, ports without names": {svc, "spec: {ports: [{port: 80}, {port: 81, name: b}]}", "", "spec.ports[0].name: Required value"},
		"service, ports of one name":   {svc, "spec: {ports: [{port: 80, name: b}, {port: 81, name: b}]}", "", "spec.ports[1].name: Duplicate value"},
		"service, one port twice":      {svc, "spec: {ports: [{port: 80, name: a}, {port: 80, name: b}]}", "", "spec.ports[1]: Duplicate value"},
		"service, port":                {svc, "spec: {ports: [{port: 65536, targetPort: 1}]}", "", "spec.ports[0].port: Invalid value"},
		"service, target":              {svc, "spec: {ports: [{port: 80, targetPort: Bad_Name}]}", "", "spec.ports[0].targetPort: Invalid value"},
		"service, node port of none":   {svc, "spec: {ports: [{port: 80, nodePort: 30080}]}", "", "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"},
		"service, selector":            {svc, `spec: {ports: [{port: 80}], selector: {a: "b c"}}`, "", "spec.selector: Invalid value"},
		"service, affinity":            {svc, "spec: {ports: [{port: 80}], sessionAffinity: Some}", "", "spec.sessionAffinity: Unsupported value"},
		"service, affinity of days":    {svc, "spec: {ports: [{port: 80}], sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}}", "", "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value"},
		"service, external IP":         {svc, "spec: {ports: [{port: 80}], externalIPs: [127.0.0.1]}", "", "spec.externalIPs[0]: Invalid value"},
		"service, external policy":     {svc, "spec: {ports: [{port: 80}], externalTrafficPolicy: Local}", "", "spec.externalTrafficPolicy: Invalid value"},
		"service, internal policy":     {svc, "spec: {ports: [{port: 80}], internalTrafficPolicy: Some}", "", "spec.internalTrafficPolicy: Unsupported value"},
		"service, distribution":        {svc, "spec: {ports: [{port: 80}], trafficDistribution: Far}", "", "spec.trafficDistribution: Unsupported value"},
		"service, class":               {svc, "spec: {ports: [{port: 80}], loadBalancerClass: a.b/c}", "", "spec.loadBalancerClass: Forbidden"},
		"service, source ranges":       {svc, "spec: {type: LoadBalancer, ports: [{port: 80}], loadBalancerSourceRanges: [10.0.0.0]}", "", "spec.loadBalancerSourceRanges[0]: Invalid value"},
		"service, health check":        {svc, "spec: {type: NodePort, ports: [{port: 80}], healthCheckNodePort: 30000}", "", "spec.healthCheckNodePort: Invalid value"},
		"service, addresses":           {svc, "spec: {ports: [{port: 80}], clusterIP: 10.43.0.9, clusterIPs: [10.43.0.8]}", "", "spec.clusterIPs: Invalid value"},
		"service, address":             {svc, "spec: {ports: [{port: 80}], clusterIP: web, clusterIPs: [web]}", "", "spec.clusterIPs[0]: Invalid value"},
		"service, None and more":       {svc, "spec: {ports: [{port: 80}], clusterIP: None, clusterIPs: [None, 'fd00::1']}", "", "spec.clusterIPs[0]: Invalid value"},
		"service, two of a family":     {svc, "spec: {ports: [{port: 80}], clusterIP: 10.43.0.8, clusterIPs: [10.43.0.8, 10.43.0.9]}", "", "spec.clusterIPs: Invalid value"},
		"service, family":              {svc, "spec: {ports: [{port: 80}], ipFamilies: [IPv5]}", "", "spec.ipFamilies[0]: Unsupported value"},
		"service, policy of families":  {svc, "spec: {ports: [{port: 80}], ipFamilyPolicy: Some}", "", "spec.ipFamilyPolicy: Unsupported value"},
		"the address changes":          {svc, "spec: {ports: [{port: 80}], clusterIP: 10.43.0.9, clusterIPs: [10.43.0.9]}", "spec: {ports: [{port: 80}], clusterIP: 10.43.0.8, clusterIPs: [10.43.0.8]}", "spec.clusterIPs[0]: Invalid value"},
		"the second address goes":      {svc, "spec: {ports: [{port: 80}], clusterIP: 10.43.0.8, clusterIPs: [10.43.0.8]}", "spec: {ports: [{port: 80}], clusterIP: 10.43.0.8, clusterIPs: [10.43.0.8, 'fd00::8']}", ""},
		"the class changes":            {svc, "spec: {type: LoadBalancer, ports: [{port: 80}], loadBalancerClass: a.b/c}", "spec: {type: LoadBalancer, ports: [{port: 80}]}", "spec.loadBalancerClass: Invalid value"},
		"slice changes its kind":       {slice, "{addressType: IPv6, endpoints: []}", "{addressType: IPv4, endpoints: []}", "addressType: Invalid value"},
	} {
		t.Run(name, tc.check)
	}
}
