package registry_test

import (
	"testing"

	"monopod.dev/monopod/internal/apiserver/registry/horizontalpodautoscaler"
)

func TestRulesOfAutoscalers(t *testing.T) {
	hpa := rulesOf(horizontalpodautoscaler.Resource())
	with := func(more string) string {
		return "spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}" + more + "}"
	}
	to := func(ref string) string { return "spec: {maxReplicas: 3, scaleTargetRef: " + ref + "}" }
	metric := func(m string) string { return with(", metrics: [" + m + "]") }
	up := func(rules string) string { return with(", behavior: {scaleUp: " + rules + "}") }
	for name, tc := range map[string]ruleCase{
		"autoscaler":              {hpa, with(""), "", ""},
		"of every kind of metric": {hpa, metric("{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}, {type: Pods, pods: {metric: {name: m}, target: {type: AverageValue, averageValue: 1}}}"), "", ""},
		"no pods at all":          {hpa, with(", minReplicas: 0, metrics: [{type: External, external: {metric: {name: m}, target: {type: Value, value: 1}}}]"), "", "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"},
		"no pods, as it was": {hpa, with(", minReplicas: 0, metrics: [{type: External, external: {metric: {name: m}, target: {type: Value, value: 1}}}]"),
			with(", minReplicas: 0, metrics: [{type: External, external: {metric: {name: m}, target: {type: Value, value: 2}}}]"), ""},
		"no pods, no metric of them": {hpa, with(", minReplicas: 0"), with(", minReplicas: 0"), "spec.metrics: Forbidden"},
		"no limit":                   {hpa, "spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}", "", "spec.maxReplicas: Required value"},
		"limit below zero":           {hpa, "spec: {maxReplicas: -1, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}", "", "spec.maxReplicas: Invalid value"},
		"limits crossed":             {hpa, with(", minReplicas: 4"), "", "spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`"},
		"nothing to scale":           {hpa, to("{apiVersion: apps/v1, kind: Deployment}"), "", "spec.scaleTargetRef.name: Required value"},
		"no kind":                    {hpa, to("{apiVersion: apps/v1, name: web}"), "", "spec.scaleTargetRef.kind: Required value"},
		"kind of a path":             {hpa, to("{apiVersion: apps/v1, kind: a/b, name: web}"), "", "spec.scaleTargetRef.kind: Invalid value"},
		"no group":                   {hpa, to("{apiVersion: v1, kind: Pod, name: web}"), "", "spec.scaleTargetRef.apiVersion: Invalid value"},
		"of core":                    {hpa, to("{apiVersion: v1, kind: ReplicationController, name: web}"), "", ""},
		"version of three":           {hpa, to("{apiVersion: a/b/c, kind: ReplicationController, name: web}"), "", "spec.scaleTargetRef.apiVersion: Invalid value"},
		"no group, as it was":        {hpa, to("{apiVersion: v1, kind: Pod, name: new}"), to("{apiVersion: v1, kind: Pod, name: web}"), ""},
		"metric without type":        {hpa, metric("{}"), "", "spec.metrics[0].type: Required value"},
		"metric of another type":     {hpa, metric("{type: Some}"), "", "spec.metrics[0].type: Unsupported value"},
		"metric without source":      {hpa, metric("{type: Pods}"), "", "spec.metrics[0].pods: Required value"},
		"metric with two sources":    {hpa, metric("{type: Pods, pods: {metric: {name: m}, target: {type: AverageValue, averageValue: 1}}, resource: {name: cpu, target: {}}}"), "", "spec.metrics[0].resource: Forbidden"},
		"metric without name":        {hpa, metric("{type: Pods, pods: {metric: {}, target: {type: AverageValue, averageValue: 1}}}"), "", "spec.metrics[0].pods.metric.name: Required value"},
		"metric, name of a path":     {hpa, metric("{type: Pods, pods: {metric: {name: a/b}, target: {type: AverageValue, averageValue: 1}}}"), "", "spec.metrics[0].pods.metric.name: Invalid value"},
		"metric without target":      {hpa, metric("{type: Pods, pods: {metric: {name: m}, target: {type: AverageValue}}}"), "", "spec.metrics[0].pods.target.averageValue: Required value"},
		"target of no type":          {hpa, metric("{type: Pods, pods: {metric: {name: m}, target: {averageValue: 1}}}"), "", "spec.metrics[0].pods.target.type: Required value"},
		"target of another type":     {hpa, metric("{type: Pods, pods: {metric: {name: m}, target: {type: Some, averageValue: 1}}}"), "", "spec.metrics[0].pods.target.type: Invalid value"},
		"target of zero":             {hpa, metric("{type: Pods, pods: {metric: {name: m}, target: {type: AverageValue, averageValue: 0}}}"), "", "spec.metrics[0].pods.target.averageValue: Invalid value"},
		"target of no share":         {hpa, metric("{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 0}}}"), "", "spec.metrics[0].resource.target.averageUtilization: Invalid value"},
		"resource without name":      {hpa, metric("{type: Resource, resource: {target: {type: Utilization, averageUtilization: 1}}}"), "", "spec.metrics[0].resource.name: Required value"},
		"resource without target":    {hpa, metric("{type: Resource, resource: {name: cpu, target: {type: Utilization}}}"), "", "spec.metrics[0].resource.target.averageUtilization: Required value"},
		"resource with two targets":  {hpa, metric("{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 1, averageValue: 1}}}"), "", "spec.metrics[0].resource.target.averageValue: Forbidden"},
		"resource of containers":     {hpa, metric("{type: ContainerResource, containerResource: {name: cpu, container: c, target: {type: Utilization, averageUtilization: 1}}}"), "", ""},
		"resource of which":          {hpa, metric("{type: ContainerResource, containerResource: {name: cpu, target: {type: Utilization, averageUtilization: 1}}}"), "", "spec.metrics[0].containerResource.container: Required value"},
		"resource of a bad name":     {hpa, metric("{type: ContainerResource, containerResource: {name: cpu, container: A, target: {type: Utilization, averageUtilization: 1}}}"), "", "spec.metrics[0].containerResource.container: Invalid value"},
		"container's what":           {hpa, metric("{type: ContainerResource, containerResource: {container: c, target: {type: Utilization, averageUtilization: 1}}}"), "", "spec.metrics[0].containerResource.name: Required value"},
		"container's disk":           {hpa, metric("{type: ContainerResource, containerResource: {name: disk, container: c, target: {type: Utilization, averageUtilization: 1}}}"), "", "spec.metrics[0].containerResource.name: Invalid value"},
		"of an object":               {hpa, metric("{type: Object, object: {describedObject: {kind: Service, name: s}, metric: {name: m}, target: {type: Value, value: 1}}}"), "", ""},
		"of no object":               {hpa, metric("{type: Object, object: {describedObject: {kind: Service}, metric: {name: m}, target: {type: Value, value: 1}}}"), "", "spec.metrics[0].object.describedObject.name: Required value"},
		"object without target":      {hpa, metric("{type: Object, object: {describedObject: {kind: Service, name: s}, metric: {name: m}, target: {type: Value}}}"), "", "spec.metrics[0].object.target.averageValue: Required value"},
		"object of no version":       {hpa, metric("{type: Object, object: {describedObject: {apiVersion: a/b/c, kind: Service, name: s}, metric: {name: m}, target: {type: Value, value: 1}}}"), "", "spec.metrics[0].object.describedObject.apiVersion: Invalid value"},
		"object of no version, as it was": {hpa, metric("{type: Object, object: {describedObject: {apiVersion: a/b/c, kind: Service, name: s}, metric: {name: m}, target: {type: Value, value: 2}}}"),
			metric("{type: Object, object: {describedObject: {apiVersion: a/b/c, kind: Service, name: s}, metric: {name: m}, target: {type: Value, value: 1}}}"), ""},
		"external without target":   {hpa, metric("{type: External, external: {metric: {name: m}, target: {type: Value}}}"), "", "spec.metrics[0].external.target.averageValue: Required value"},
		"external with two targets": {hpa, metric("{type: External, external: {metric: {name: m}, target: {type: Value, value: 1, averageValue: 1}}}"), "", "spec.metrics[0].external.target.value: Forbidden"},
		"behavior":                  {hpa, up("{stabilizationWindowSeconds: 3600, selectPolicy: Disabled, policies: [{type: Percent, value: 1, periodSeconds: 1800}], tolerance: 0}"), "", ""},
		"behavior, window":          {hpa, up("{stabilizationWindowSeconds: 3601}"), "", "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value"},
		"behavior, choice":          {hpa, up("{selectPolicy: Some}"), "", "spec.behavior.scaleUp.selectPolicy: Unsupported value"},
		"behavior of no policy":     {hpa, up("{policies: []}"), "", "spec.behavior.scaleUp.policies: Required value"},
		"behavior, policy":          {hpa, up("{policies: [{type: Some, value: 1, periodSeconds: 1}]}"), "", "spec.behavior.scaleUp.policies[0].type: Unsupported value"},
		"behavior, value":           {hpa, up("{policies: [{type: Pods, value: 0, periodSeconds: 1}]}"), "", "spec.behavior.scaleUp.policies[0].value: Invalid value"},
		"behavior, period":          {hpa, up("{policies: [{type: Pods, value: 1, periodSeconds: 1801}]}"), "", "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value"},
		"behavior, tolerance":       {hpa, with(", behavior: {scaleDown: {tolerance: '-1'}}"), "", "spec.behavior.scaleDown.tolerance: Invalid value"},
	} {
		t.Run(name, tc.check)
	}
}
