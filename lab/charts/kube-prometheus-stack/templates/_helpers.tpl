{{- define "stack.labels" -}}
release: {{ .Release.Name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/part-of: kube-prometheus-stack
{{- end }}

{{/* A selector as the real chart makes it: the one that is given, else the release's label, else everything. */}}
{{- define "stack.selector" -}}
{{- $spec := .root.Values.prometheus.prometheusSpec -}}
{{- $given := index $spec (printf "%sSelector" .what) -}}
{{- if $given -}}
{{ toYaml $given }}
{{- else if index $spec (printf "%sSelectorNilUsesHelmValues" .what) -}}
matchLabels:
  release: {{ .root.Release.Name | quote }}
{{- else -}}
{}
{{- end -}}
{{- end }}
