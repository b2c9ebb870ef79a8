package registry_test

import (
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod.dev/monopod/internal/apiserver/registry/csidriver"
	"monopod.dev/monopod/internal/apiserver/registry/csinode"
	"monopod.dev/monopod/internal/apiserver/registry/csistoragecapacity"
	"monopod.dev/monopod/internal/apiserver/registry/storageclass"
	"monopod.dev/monopod/internal/apiserver/registry/volumeattachment"
	"monopod.dev/monopod/internal/apiserver/registry/volumeattributesclass"
)

func TestRulesOfStorageClasses(t *testing.T) {
	class, attributes := rulesOf(storageclass.Resource()), rulesOf(volumeattributesclass.Resource())
	driver, node, room := rulesOf(csidriver.Resource()), rulesOf(csinode.Resource()), rulesOf(csistoragecapacity.Resource())
	const zone = "matchLabelExpressions: [{key: zone, values: [a, b]}]"
	drivers := func(list string) string { return "spec: {drivers: [" + list + "]}" }
	long := strings.Repeat("a", 257)
	for name, tc := range map[string]ruleCase{
		"class":                      {class, "{provisioner: Example.com/disk, parameters: {a: b}, reclaimPolicy: Retain, volumeBindingMode: WaitForFirstConsumer, mountOptions: [ro], allowVolumeExpansion: true, allowedTopologies: [{" + zone + "}]}", "", ""},
		"class of nobody":            {class, "{}", "", "provisioner: Required value"},
		"class, provisioner":         {class, "provisioner: a b", "", `provisioner: Invalid value: "a b"`},
		"class, nameless parameter":  {class, "{provisioner: a, parameters: {'': b}}", "", `parameters: Invalid value: "": field can not be empty.`},
		"class, long parameters":     {class, "{provisioner: a, parameters: {b: " + strings.Repeat("c", 256<<10) + "}}", "", "parameters: Too long"},
		"class, policy":              {class, "{provisioner: a, reclaimPolicy: Recycle}", "", `reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"`},
		"class, mode":                {class, "{provisioner: a, volumeBindingMode: Later}", "", `volumeBindingMode: Unsupported value: "Later": supported values: "Immediate", "WaitForFirstConsumer"`},
		"class, no values":           {class, "{provisioner: a, allowedTopologies: [{matchLabelExpressions: [{key: zone}]}]}", "", "allowedTopologies[0].matchLabelExpressions[0].values: Required value"},
		"class, values":              {class, "{provisioner: a, allowedTopologies: [{matchLabelExpressions: [{key: zone, values: [a, a]}]}]}", "", "allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value"},
		"class, key":                 {class, "{provisioner: a, allowedTopologies: [{matchLabelExpressions: [{key: 'a b', values: [a]}]}]}", "", "allowedTopologies[0].matchLabelExpressions[0].key: Invalid value"},
		"class, keys":                {class, "{provisioner: a, allowedTopologies: [{matchLabelExpressions: [{key: a, values: [a]}, {key: a, values: [b]}]}]}", "", "allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value"},
		"class, a topology twice":    {class, "{provisioner: a, allowedTopologies: [{" + zone + "}, {matchLabelExpressions: [{key: zone, values: [b, a]}]}]}", "", "allowedTopologies[1].matchLabelExpressions: Duplicate value"},
		"class, a topology of none":  {class, "{provisioner: a, allowedTopologies: [{}]}", "", "allowedTopologies[0].matchLabelExpressions: Duplicate value"},
		"class, provisioner changes": {class, "provisioner: b", "provisioner: a", `provisioner: Invalid value: "b": field is immutable`},
		"class, parameters change":   {class, "{provisioner: a, parameters: {a: b}}", "provisioner: a", "parameters: Invalid value"},
		"class, policy changes":      {class, "{provisioner: a, reclaimPolicy: Retain}", "provisioner: a", `reclaimPolicy: Invalid value: "Retain": field is immutable`},
		"class, mode changes":        {class, "{provisioner: a, volumeBindingMode: WaitForFirstConsumer}", "provisioner: a", "volumeBindingMode: Invalid value"},
		"class, what may change":     {class, "{provisioner: a, allowVolumeExpansion: true, mountOptions: [ro], allowedTopologies: [{" + zone + "}]}", "provisioner: a", ""},

		"attributes":                   {attributes, "{driverName: a.b, parameters: {iops: '5'}}", "", ""},
		"attributes of nobody":         {attributes, "parameters: {iops: '5'}", "", "driverName: Required value"},
		"attributes, none":             {attributes, "driverName: a.b", "", "parameters: Required value: must contain at least one key/value pair"},
		"attributes, driver changes":   {attributes, "{driverName: a.c, parameters: {a: b}}", "{driverName: a.b, parameters: {a: b}}", "driverName: Forbidden: updates to driverName are forbidden."},
		"attributes, they change":      {attributes, "{driverName: a.b, parameters: {a: c}}", "{driverName: a.b, parameters: {a: b}}", "parameters: Forbidden: updates to parameters are forbidden."},
		"driver":                       {driver, "spec: {attachRequired: false, fsGroupPolicy: File, volumeLifecycleModes: [Persistent, Ephemeral], tokenRequests: [{audience: ''}, {audience: a, expirationSeconds: 600}], nodeAllocatableUpdatePeriodSeconds: 10}", "", ""},
		"driver, policy":               {driver, "spec: {fsGroupPolicy: Some}", "", `spec.fsGroupPolicy: Unsupported value: "Some": supported values: "File", "None", "ReadWriteOnceWithFSType"`},
		"driver, mode":                 {driver, "spec: {volumeLifecycleModes: [Some]}", "", `spec.volumeLifecycleModes: Unsupported value: "Some": supported values: "Persistent", "Ephemeral"`},
		"driver, audience":             {driver, "spec: {tokenRequests: [{audience: a}, {audience: a}]}", "", `spec.tokenRequests[1].audience: Duplicate value: "a"`},
		"driver, short token":          {driver, "spec: {tokenRequests: [{audience: a, expirationSeconds: 599}]}", "", "spec.tokenRequests[0].expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes"},
		"driver, long token":           {driver, "spec: {tokenRequests: [{audience: a, expirationSeconds: 4294967297}]}", "", "spec.tokenRequests[0].expirationSeconds: Invalid value"},
		"driver, secrets of no tokens": {driver, "spec: {serviceAccountTokenInSecrets: true}", "", "spec.serviceAccountTokenInSecrets: Invalid value: true: serviceAccountTokenInSecrets is set but no tokenRequests are specified"},
		"driver, period":               {driver, "spec: {nodeAllocatableUpdatePeriodSeconds: 9}", "", "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10 seconds"},
		"driver, attachment changes":   {driver, "spec: {attachRequired: false}", "spec: {}", "spec.attachedRequired: Invalid value: false: field is immutable"},
		"driver, modes change":         {driver, "spec: {volumeLifecycleModes: [Ephemeral]}", "spec: {}", "spec.volumeLifecycleModes: Invalid value"},
		"driver, what may change":      {driver, "spec: {podInfoOnMount: true, fsGroupPolicy: None, storageCapacity: true, seLinuxMount: true, requiresRepublish: true}", "spec: {}", ""},
		"node":                         {node, drivers("{name: a.b, nodeID: n, topologyKeys: [a.b/zone], allocatable: {count: 3}}, {name: a.c, nodeID: n, topologyKeys: []}"), "", ""},
		"node without drivers":         {node, drivers(""), "", ""},
		"node, driver":                 {node, drivers("{name: a_b, nodeID: n, topologyKeys: []}"), "", "spec.drivers[0].name: Invalid value"},
		"node, drivers":                {node, drivers("{name: a, nodeID: n, topologyKeys: []}, {name: a, nodeID: n, topologyKeys: []}"), "", "spec.drivers[1].name: Duplicate value"},
		"node, nameless":               {node, drivers("{name: a, nodeID: '', topologyKeys: []}"), "", "spec.drivers[0].nodeID: Required value"},
		"node, long name":              {node, drivers("{name: a, nodeID: " + long + ", topologyKeys: []}"), "", "spec.drivers[0].nodeID: Invalid value"},
		"node, count":                  {node, drivers("{name: a, nodeID: n, topologyKeys: [], allocatable: {count: -1}}"), "", "spec.drivers[0].allocatable.count: Invalid value"},
		"node, keys":                   {node, drivers("{name: a, nodeID: n, topologyKeys: [z, z]}"), "", "spec.drivers[0]: Duplicate value"},
		"node, key":                    {node, drivers("{name: a, nodeID: n, topologyKeys: ['a b']}"), "", "spec.drivers[0]: Invalid value"},
		"node, the driver changes":     {node, drivers("{name: a, nodeID: m, topologyKeys: []}"), drivers("{name: a, nodeID: n, topologyKeys: []}"), "spec.drivers: Invalid value"},
		"node, the count changes":      {node, drivers("{name: a, nodeID: n, topologyKeys: [], allocatable: {count: 4}}, {name: b, nodeID: n, topologyKeys: []}"), drivers("{name: a, nodeID: n, topologyKeys: []}"), ""},
		"room":                         {room, "{storageClassName: a, nodeTopology: {matchLabels: {zone: a}}, capacity: 1Gi, maximumVolumeSize: 1Mi}", "", ""},
		"room of no class":             {room, "{storageClassName: ''}", "", "storageClassName: Invalid value"},
		"room, topology":               {room, "{storageClassName: a, nodeTopology: {matchLabels: {zone: 'a b'}}}", "", "nodeTopology.matchLabels: Invalid value"},
		"room below nothing":           {room, "{storageClassName: a, capacity: '-1'}", "", `capacity: Invalid value: "-1": must be greater than or equal to 0`},
		"room, class changes":          {room, "storageClassName: b", "storageClassName: a", `storageClassName: Invalid value: "b": field is immutable`},
		"room, topology changes":       {room, "{storageClassName: a, nodeTopology: {}}", "storageClassName: a", "nodeTopology: Invalid value"},
		"room changes":                 {room, "{storageClassName: a, capacity: 2Gi}", "{storageClassName: a, capacity: 1Gi}", ""},
	} {
		t.Run(name, tc.check)
	}
}

func TestRulesOfVolumeAttachments(t *testing.T) {
	attachment := rulesOf(volumeattachment.Resource())
	of := func(source string) string { return "spec: {attacher: a.b, nodeName: n, source: {" + source + "}}" }
	inline := func(spec string) string {
		return of("inlineVolumeSpec: {accessModes: [ReadWriteOnce], csi: {driver: a.b, volumeHandle: h}, " + spec + "}")
	}
	const pv = "persistentVolumeName: v"
	status := func(s string) string { return "{" + of(pv) + ", status: {" + s + "}}" }
	for name, tc := range map[string]ruleCase{
		"of a volume":          {attachment, of(pv), "", ""},
		"of nobody":            {attachment, "spec: {nodeName: n, source: {" + pv + "}}", "", "spec.attacher: Required value"},
		"attacher":             {attachment, "spec: {attacher: " + strings.Repeat("a", 64) + ", nodeName: n, source: {" + pv + "}}", "", "spec.attacher: Too long"},
		"to nothing":           {attachment, "spec: {attacher: a.b, source: {" + pv + "}}", "", "spec.nodeName: Invalid value"},
		"of nothing":           {attachment, of(""), "", "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName"},
		"of two":               {attachment, of(pv + ", inlineVolumeSpec: {}"), "", "spec.source: Forbidden: must specify exactly one of inlineVolumeSpec and persistentVolumeName"},
		"of a name":            {attachment, of("persistentVolumeName: A"), "", "spec.source.persistentVolumeName: Invalid value"},
		"inline":               {attachment, inline("volumeMode: Filesystem, persistentVolumeReclaimPolicy: Retain"), "", ""},
		"inline, no driver":    {attachment, of("inlineVolumeSpec: {accessModes: [ReadWriteOnce], hostPath: {path: /a}}"), "", "spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes"},
		"inline, two":          {attachment, inline("hostPath: {path: /a}"), "", "spec.source.inlineVolumeSpec.csi: Forbidden: may not specify more than 1 volume type"},
		"inline, claim":        {attachment, inline("claimRef: {name: c}"), "", "spec.source.inlineVolumeSpec.claimRef: Forbidden: may not be specified in the context of inline volumes"},
		"inline, size":         {attachment, inline("capacity: {storage: 1Gi}"), "", "spec.source.inlineVolumeSpec.capacity: Forbidden"},
		"inline, place":        {attachment, inline("nodeAffinity: {}"), "", "spec.source.inlineVolumeSpec.nodeAffinity: Forbidden"},
		"inline, class":        {attachment, inline("storageClassName: c"), "", "spec.source.inlineVolumeSpec.storageClassName: Forbidden"},
		"inline, policy":       {attachment, inline("persistentVolumeReclaimPolicy: Delete"), "", "spec.source.inlineVolumeSpec.persistentVolumeReclaimPolicy: Forbidden: may only be Retain in the context of inline volumes"},
		"inline, mode":         {attachment, inline("volumeMode: Block"), "", "spec.source.inlineVolumeSpec.volumeMode: Forbidden: may not specify volumeMode other than Filesystem in the context of inline volumes"},
		"inline, nobody":       {attachment, of("inlineVolumeSpec: {csi: {driver: a.b, volumeHandle: h}}"), "", "spec.source.inlineVolumeSpec.accessModes: Required value"},
		"it changes":           {attachment, of("persistentVolumeName: w"), of(pv), "spec: Invalid value"},
		"status":               {attachment, status("attached: true, attachmentMetadata: {a: b}, attachError: {message: m, errorCode: 3}"), "", ""},
		"status, long":         {attachment, status("attached: true, attachmentMetadata: {a: " + strings.Repeat("b", 256<<10) + "}"), "", "status.attachmentMetadata: Too long"},
		"status, long message": {attachment, status("attached: false, detachError: {message: " + strings.Repeat("b", 1025) + "}"), "", "status.detachError.message: Too long"},
		"status, code":         {attachment, status("attached: false, attachError: {errorCode: -1}"), "", "status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive"},
	} {
		t.Run(name, tc.check)
	}
}

func TestDefaultsOfStorage(t *testing.T) {
	class, driver := &storagev1.StorageClass{}, &storagev1.CSIDriver{}
	storageclass.Resource().Default(class)
	csidriver.Resource().Default(driver)
	for _, tc := range []struct {
		obj  any
		want string
	}{
		{class, "metadata: {}\nprovisioner: \"\"\nreclaimPolicy: Delete\nvolumeBindingMode: Immediate\n"},
		{driver.Spec, "attachRequired: true\nfsGroupPolicy: ReadWriteOnceWithFSType\npodInfoOnMount: false\npreventPodSchedulingIfMissing: false\nrequiresRepublish: false\n" +
			"seLinuxMount: false\nstorageCapacity: false\nvolumeLifecycleModes:\n- Persistent\n"},
	} {
		if got, err := yaml.Marshal(tc.obj); err != nil || string(got) != tc.want {
			t.Errorf("%s, %v; want\n%s", got, err, tc.want)
		}
	}
}

func TestWarningsOfStorage(t *testing.T) {
	for name, tc := range map[string]struct {
		told []string
		want string
	}{
		"class": {warned(t, storageclass.Resource().Warn, "{provisioner: a, allowedTopologies: [{matchLabelExpressions: [{key: a}, {key: failure-domain.beta.kubernetes.io/zone}]}]}"),
			`allowedTopologies[0].matchLabelExpressions[1].key: deprecated since v1.17; use "topology.kubernetes.io/zone" instead`},
		"room": {warned(t, csistoragecapacity.Resource().Warn, "{nodeTopology: {matchLabels: {beta.kubernetes.io/os: linux}, matchExpressions: [{key: beta.kubernetes.io/arch, operator: Exists}]}}"),
			`nodeTopology.matchExpressions[0].key: beta.kubernetes.io/arch is deprecated since v1.14; use "kubernetes.io/arch" instead;` +
				`nodeTopology.matchLabels.beta.kubernetes.io/os: deprecated since v1.14; use "kubernetes.io/os" instead`},
		"driver": {warned(t, csidriver.Resource().Warn, "{spec: {tokenRequests: [{audience: a}]}}"),
			"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"},
		"driver that says where": {warned(t, csidriver.Resource().Warn, "{spec: {tokenRequests: [{audience: a}], serviceAccountTokenInSecrets: false}}"), ""},
		"driver of no tokens":    {warned(t, csidriver.Resource().Warn, "{}"), ""},
	} {
		if got := strings.Join(tc.told, ";"); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	d := &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "a"}}}}
	if told := csidriver.Resource().WarnUpdate(d, d.DeepCopy()); len(told) > 0 {
		t.Errorf("tokens as they were: %q", told)
	}
}

// warned are the warnings about an object that is given as YAML.
func warned[T any](t *testing.T, warn func(*T) []string, text string) []string {
	t.Helper()
	obj := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatal(err)
	}
	return warn(obj)
}

// A CSINode's status is its own; upstream drops what is in it unless a gate is open.
func TestStatusOfCSINodes(t *testing.T) {
	n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: storagev1.CSINodeStatus{StorageHealth: []storagev1.StorageHealth{{Name: "a"}}}}
	if csinode.Resource().Status.Prepare(n, n.DeepCopy()); len(n.Status.StorageHealth) > 0 {
		t.Errorf("the health of drivers is kept: %v", n.Status.StorageHealth)
	}
}
