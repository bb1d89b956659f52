"""The page: the only home of Streamlit and Plotly. It shows what the front door returns and holds no arithmetic."""
